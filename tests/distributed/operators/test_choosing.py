from __future__ import annotations

import pytest

from parllel.distributed.operators.protocol.choosing import OfferedAction, offered_actions


def test_actions_have_the_names_of_the_environment_and_keys():
    names = ["left", "Right", "forward", "pick up"]
    assert offered_actions({"text": "Discrete(5)", "n": 5, "start": 0}, names=names) == [
        OfferedAction(0, "left", ["0", "ArrowLeft"]),
        OfferedAction(1, "Right", ["1", "ArrowRight"]),
        OfferedAction(2, "forward", ["2", "ArrowUp"]),
        OfferedAction(3, "pick up", ["3"]),
        OfferedAction(4, "4", ["4"]),
    ]


def test_keys_can_be_chosen_and_begin_where_the_space_does():
    found = offered_actions({"n": 2, "start": -1}, keys={"w": 0, "space": 0, "left": -1})
    assert found == [OfferedAction(-1, "-1", ["ArrowLeft"]), OfferedAction(0, "0", ["w", " "])]


def test_legal_actions_alone_are_offered():
    found = offered_actions({"n": 40}, legal=[3, 38], names=["a", "b", "c", "d"])
    assert found == [OfferedAction(3, "d", ["3"]), OfferedAction(38, "38", [])]


def test_moves_are_called_by_their_own_names():
    found = offered_actions({"n": 4672}, legal=[7, 900], legal_names=["e2e4", "g1f3"])
    assert found == [OfferedAction(7, "e2e4", []), OfferedAction(900, "g1f3", [])]


@pytest.mark.parametrize(
    "space", [None, "Discrete(3)", {"text": "Box(2,)"}, {"n": "3"}, {"n": 257}]
)
def test_other_actions_are_typed(space):
    assert offered_actions(space) is None
