"""Random requests to cards that people play: each is done or refused, and no thread waits for ever."""

from __future__ import annotations

import random

import pytest
from boards import until
from left_records import records
from playing_games import FOUR, config_of, player

from parllel.distributed.operators import Board, OperatorConfig
from parllel.distributed.operators.board.board import UnknownCardError
from parllel.errors import WrongStateError

FIRST = "def act(command):\n    return command['legal_actions'][0]"


def wish(board, drawn, configs):
    """Make a random wish, as two pages would that know of each other nothing."""
    shown = board.snapshot()
    cards = shown["cards"]
    ids = [card["id"] for card in cards]
    some = drawn.sample(ids, drawn.randint(0, len(ids))) or None
    kind = drawn.choices(
        ("act", "play", "stop", "step", "reset", "restart", "remove", "launch"),
        (12, 3, 2, 4, 3, 1, 1, 2),
    )[0]
    if kind == "act":
        asked = [(card["id"], one) for card in cards for one in card["questions"]]
        if not asked:
            return
        card_id, question = drawn.choice(asked)
        action = drawn.choice([*question["actions"], {"action": 99}])["action"]
        board.act(card_id, question["number"] - drawn.randint(0, 1), action)
    elif kind == "play":
        board.play(some, autoplay=drawn.choice([None, True, False]))
    elif kind == "stop":
        board.stop()
    elif kind == "step":
        board.step(some)
    elif kind == "reset":
        board.reset(drawn.choice([None, 7]), some)
    elif kind == "launch":
        board.launch(drawn.choice(configs))
    else:
        getattr(board, kind)(drawn.choice([*ids, "nobody"]))


@pytest.mark.parametrize("seed", range(2))
def test_wishes_are_done_or_refused_and_nothing_waits_for_ever(seed, quick_people, tmp_path):
    drawn = random.Random(seed)
    me = OperatorConfig("human", "me", "FrozenLake-v1")
    duel = config_of(
        FOUR,
        {"player_0": OperatorConfig("human", "I"), "player_1": player(tmp_path, "first", FIRST)},
        max_steps=6,
        illegal="error",
    )
    refused = 0
    with Board([me, duel], base=tmp_path) as board:
        for _ in range(60):
            try:
                wish(board, drawn, [me, duel])
            except (WrongStateError, UnknownCardError, ValueError):
                refused += 1
            if drawn.random() < 0.3:
                # Let the threads come as far as they can without a wish.
                until(
                    board,
                    lambda shown: all(
                        card["status"] not in ("starting", "thinking") for card in shown["cards"]
                    ),
                )
        # Whatever came before, each card that is there can be played to an end.
        for config in (me, duel):
            if config.operator_id not in [card["id"] for card in board.snapshot()["cards"]]:
                board.launch(config)
        board.play([], autoplay=False)
        board.reset(11)
        board.play()
        while True:
            shown = board.snapshot()
            if all(card["status"] == "ended" for card in shown["cards"]):
                break
            for card in shown["cards"]:
                assert card["status"] not in ("died", "failed"), card
                for question in card["questions"]:
                    board.act(card["id"], question["number"], question["actions"][0]["action"])
            version = shown["version"]
            until(board, lambda shown, version=version: shown["version"] > version)
        folder = board.folder
    assert refused
    for card_id in ("me", "game"):
        last = records(folder, f"board_{card_id}", "episodes")[-1]
        assert (last["seed"], last["status"]) == (11, "ended")
