from __future__ import annotations

import copy

import numpy as np
import pytest
from gymnasium import spaces

from parllel.agents import RandomAgent, check_action_space, check_example_action
from parllel.testing.dummy_agents import CountingAgent

BOX = spaces.Box(-1, 1, (2,))


class Drawing(CountingAgent):
    def __init__(self, space):
        super().__init__(1)
        self.action_space = space


def multi(nvec, start=None):
    return spaces.MultiDiscrete(np.array(nvec), start=None if start is None else np.array(start))


SAME = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=-1),
    multi([2, 3]),
    spaces.Tuple((spaces.Discrete(2), spaces.Tuple((BOX,)))),
    spaces.Text(3),
]
FIT = [
    *zip(SAME, copy.deepcopy(SAME), strict=True),
    (multi([2, 2]), spaces.MultiBinary(2)),
    (multi([7, 7], [-3, -3]), spaces.Box(-3, 3, (2,), np.int8)),
    (spaces.Box(-np.inf, np.inf, (2,)), BOX),  # cages clip
    (spaces.Box(-np.inf, np.inf, (2,)), spaces.Box(-1, 1, (2,), np.float64)),
    (spaces.Dict({"a": multi([2]), "b": BOX}), spaces.Dict({"b": BOX, "a": multi([2])})),
]
DIFFER = [
    (
        spaces.Discrete(2),
        spaces.Discrete(3),
        r"expected Discrete\(3\), Drawing draws from Discrete\(2\)$",
    ),
    (
        spaces.Discrete(4),
        spaces.Discrete(3),
        r"expected Discrete\(3\), Drawing draws from Discrete\(4\)$",
    ),
    (
        spaces.Discrete(3),
        spaces.Discrete(3, start=1),
        r"draws from .*; give its distribution start=1",
    ),
    (spaces.Discrete(3), multi([3]), r"expected MultiDiscrete\(\[3\]"),
    (multi([2, 3]), multi([3, 2]), r"expected MultiDiscrete\(\[3 2\]"),
    (multi([2]), multi([2, 2]), r"expected MultiDiscrete\(\[2 2\]"),
    (multi([2, 3]), multi([2, 3], [0, 5]), r"; give its distribution start=\[0, 5\]"),
    (multi([3, 3]), spaces.MultiBinary(2), r"expected MultiBinary\(2\)"),
    (multi([2, 2, 2, 2]), spaces.MultiBinary((2, 2)), "expected MultiBinary"),
    (multi([5, 5]), spaces.Box(-3, 3, (2,), np.int8), r"expected Box\(-3, 3"),
    (BOX, spaces.Discrete(3), r"expected Discrete\(3\), Drawing draws from Box"),
    (spaces.Discrete(3), BOX, r"expected Box\(.*draws from Discrete"),
    (
        spaces.Box(-1, 1, (1,)),
        BOX,
        r"expected Box\(.*\(2,\), float32\), Drawing draws from .*\(1,\)",
    ),
    (spaces.Dict({"a": BOX}), spaces.Dict({"b": BOX}), r": expected Dict\('b'"),
    (
        spaces.Dict({"a": spaces.Dict({"c": spaces.Discrete(2)})}),
        spaces.Dict({"a": spaces.Dict({"c": spaces.Discrete(3)})}),
        r"\.a\.c: expected Discrete\(3\)",
    ),
    (BOX, spaces.Dict({"a": BOX}), r"expected Dict\('a'"),
    (spaces.Dict({"a": BOX}), BOX, r"expected Box"),
    (spaces.Text(3), spaces.Text(4), r"expected Text"),
]


@pytest.mark.parametrize(("drawn", "taken"), FIT, ids=str)
def test_agents_that_fit(drawn, taken):
    check_action_space(Drawing(drawn), taken, "CartPole-v1")


@pytest.mark.parametrize(("drawn", "taken", "message"), DIFFER, ids=str)
def test_agents_that_do_not_fit(drawn, taken, message):
    with pytest.raises(ValueError, match=rf"^CartPole-v1: agent\.action.*{message}"):
        check_action_space(Drawing(drawn), taken, "CartPole-v1")


def test_an_agent_that_says_nothing_is_not_compared():
    check_action_space(Drawing(None), spaces.Discrete(3), "CartPole-v1")


def test_a_random_agent_draws_from_its_space():
    space = spaces.Discrete(3, start=2)
    assert RandomAgent(space, 0).action_space is space


@pytest.mark.parametrize(
    ("action", "space"),
    [
        (np.int64(2), spaces.Discrete(3)),
        (np.int32(-1), spaces.Discrete(3, start=-1)),
        (np.array([1, 0]), spaces.MultiBinary(2)),
        (np.array([9.0, -9.0]), BOX),
        ((np.int64(1), np.array([0.5, 0.5])), spaces.Tuple((spaces.Discrete(2), BOX))),
    ],
)
def test_examples_that_fit(action, space):
    check_example_action(action, space, "CartPole-v1")


@pytest.mark.parametrize(
    ("action", "space", "message"),
    [
        (
            np.int64(3),
            spaces.Discrete(3),
            r"agent\.action: expected an action of Discrete\(3\), got 3",
        ),
        (
            np.int64(0),
            spaces.Discrete(3, start=1),
            r"of Discrete\(3, start=1\), got 0 from the agent",
        ),
        (np.array([1, 3]), multi([2, 3]), r"of MultiDiscrete.*, got \[1 3\]"),
        (np.float32(1), spaces.Discrete(3), "expected whole numbers.*, got float32"),
        (
            (np.int64(2), np.array([0.5, 0.5])),
            spaces.Tuple((spaces.Discrete(2), BOX)),
            r"agent\.action\._0: expected an action of Discrete\(2\), got 2",
        ),
    ],
)
def test_examples_that_do_not_fit(action, space, message):
    with pytest.raises(ValueError, match=rf"^CartPole-v1: .*{message}"):
        check_example_action(action, space, "CartPole-v1")
