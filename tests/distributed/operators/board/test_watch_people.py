"""People in experiments that are watched on a board: asked there, and written down as any operator."""

from __future__ import annotations

import pytest
from boards import card_of, settled, until
from left_records import all_records
from playing_games import FOUR, PLAYER

from parllel.distributed.operators import Board, load_experiment

SCRIPT = """
import sys
from parllel.distributed.operators import Experiment, MultiAgentConfig, OperatorConfig

WHO = {who!r}


def me(operator_id, env_id=None):
    if WHO == "person":
        return OperatorConfig("human", operator_id, env_id, **(LAKE if env_id else {{}}))
    if env_id is None:
        return OperatorConfig("program", operator_id, worker=[sys.executable, "-S", {last!r}])
    return OperatorConfig("baseline", operator_id, env_id, policy={right!r}, **LAKE)


LAKE = {{"env_kwargs": {{"is_slippery": False}}, "max_steps": 6}}
OTHER = OperatorConfig("program", "first", worker=[sys.executable, "-S", {first!r}])
experiment = Experiment(
    "people",
    [
        me("me", "FrozenLake-v1"),
        OperatorConfig("baseline", "random", "FrozenLake-v1", policy="random", **LAKE),
        MultiAgentConfig(
            "duel", {four!r}, {{"player_0": me("I"), "player_1": OTHER}}, seats="rotate", max_steps=7
        ),
    ],
    seeds=[4, 5],
    mode={mode!r},
)
"""
RIGHT = "def right(observation):\n    return 2 if observation % 4 < 2 else 1\n"


def script_of(folder, who, mode="free"):
    files = {}
    for name, index in (("first", 0), ("last", -1)):
        files[name] = folder / f"{name}.py"
        act = f"def act(command):\n    return command['legal_actions'][{index}]"
        files[name].write_text(PLAYER.format(act=act))
    (folder / "right.py").write_text(RIGHT)
    script = folder / f"{who}-{mode}.py"
    names = {name: str(path) for name, path in files.items()}
    right = f"{folder / 'right.py'}:right"
    script.write_text(SCRIPT.format(who=who, mode=mode, right=right, four=FOUR, **names))
    return str(script)


def answer(board, shown):
    """Answer all questions as the program of the same name decides."""
    for card in shown["cards"]:
        for question in card["questions"]:
            actions = question["actions"]
            last = actions[-1]["action"]
            # On the lake it goes right twice, then down.
            action = last if card["kind"] == "game" else (2 if card["step"] < 2 else 1)
            board.act(card["id"], question["number"], action)


@pytest.mark.parametrize("mode", ["free", "lockstep"])
@pytest.mark.few(1)
def test_what_people_choose_is_written_as_what_programs_choose(tmp_path, mode):
    with load_experiment(script_of(tmp_path, "program", mode)) as experiment:
        alone = experiment.run(tmp_path / "alone")
    assert not alone.failures
    script = script_of(tmp_path, "person", mode)
    with Board(base=tmp_path / "runs", scripts=[script]) as board:
        board.watch(script)
        settled(board, "ready")
        board.play()
        while True:
            shown = until(
                board,
                lambda shown: (
                    shown["experiment"]["state"] != "running"
                    or any(card["questions"] for card in shown["cards"])
                ),
            )
            if shown["experiment"]["state"] != "running":
                break
            answer(board, shown)
        assert (shown["experiment"]["state"], shown["experiment"]["message"]) == ("ended", None)
    assert all_records(tmp_path / "runs" / "people") == all_records(alone.folder)


def test_an_experiment_is_ended_while_a_person_thinks(tmp_path, quick_people):
    script = script_of(tmp_path, "person")
    with Board(base=tmp_path / "runs", scripts=[script]) as board:
        board.watch(script)
        settled(board, "ready")
        board.step(["me"])
        until(board, lambda shown: card_of(shown, "me")["status"] == "waiting")
        board.unwatch()
        assert board.snapshot()["cards"] == []
        board.watch(script)
        settled(board, "ready")
        board.step(["duel"])
        until(board, lambda shown: card_of(shown, "duel")["questions"])
    for folder in ("people", "people-2"):
        assert (tmp_path / "runs" / folder / "results.json").is_file()
