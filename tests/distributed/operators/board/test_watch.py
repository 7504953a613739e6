"""Experiments of scripts on a board: what they write is what they write without one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from boards import card_of, settled, until
from left_records import all_records

from parllel.distributed.operators import Board, load_experiment
from parllel.errors import WrongStateError

FRAIL = Path(__file__).parents[1] / "frail_worker.py"
SCRIPT = """
name = "two"
seeds = 5
episodes = 3
mode = "{mode}"
step_timeout_s = 20.0
restarts = 1

[[operators]]
operator_type = "baseline"
operator_id = "random"
env_id = "CartPole-v1"
policy = "random"
max_steps = 12

[[operators]]
operator_type = "baseline"
operator_id = "noop"
env_id = "CartPole-v1"
policy = "noop"

[[operators]]
operator_id = "duel"
env_id = "pettingzoo/classic/tictactoe_v3"
seats = "rotate"

[operators.players.player_1]
operator_type = "baseline"
operator_id = "one"
policy = "random"

[operators.players.player_2]
operator_type = "baseline"
operator_id = "two"
policy = "random"
"""


def script_of(folder, mode="free"):
    path = folder / f"{mode}.toml"
    path.write_text(SCRIPT.format(mode=mode))
    return str(path)


@pytest.mark.parametrize("mode", ["free", "lockstep"])
@pytest.mark.few(1)
def test_a_watched_experiment_writes_what_it_writes_by_itself(tmp_path, mode):
    script = script_of(tmp_path, mode)
    with load_experiment(script) as experiment:
        alone = experiment.run(tmp_path / "alone", script=script)
    with Board(base=tmp_path / "runs", scripts=[script], frames_per_s=1000.0) as board:
        board.watch(script)
        shown = settled(board, "ready")
        assert (shown["phase"], shown["experiment"]["state"]) == ("stopped", "running")
        assert shown["experiment"]["n_episodes"] == 3 + 3 + 6
        # By hand, by pages that look, at a speed, stopped, and as fast as possible.
        board.look("page", ["random", "duel"])
        board.step()
        until(board, lambda shown: [card["step"] for card in shown["cards"]] == [1, 1, 1])
        board.set_speed(200.0)
        board.play()
        until(board, lambda shown: shown["experiment"]["n_done"] >= 2)
        board.stop()
        settled(board, "ready", "ended")
        board.leave("page")
        board.set_speed(None)
        board.play()
        shown = until(board, lambda shown: shown["experiment"]["state"] != "running")
        assert (shown["experiment"]["state"], shown["experiment"]["message"]) == ("ended", None)
        assert shown["experiment"]["n_done"] == 12
        assert shown["phase"] == "stopped"
        assert card_of(shown, "random")["frame"] >= 2
        watched = all_records(tmp_path / "runs" / "two")
    assert watched == all_records(alone.folder)
    own, other = (
        (folder / "config.json").read_bytes()
        for folder in (tmp_path / "runs" / "two", alone.folder)
    )
    assert own == other


def test_a_watched_experiment_counts_what_failed(tmp_path):
    script = tmp_path / "frail.toml"
    worker = [sys.executable, str(FRAIL), "die=2", "error=3"]
    operator = (
        f"[[operators]]\noperator_type = 'program'\noperator_id = 'frail'\nworker = {worker}\n"
    )
    script.write_text(f"name = 'frail'\nseeds = [1, 2, 3, 4]\n{operator}")
    with Board(base=tmp_path / "runs", scripts=[script], speed=None) as board:
        board.watch(str(script))
        settled(board, "ready")
        board.play()
        shown = until(board, lambda shown: shown["experiment"]["state"] == "ended")
    counts = {name: shown["experiment"][name] for name in ("n_episodes", "n_done", "n_failed")}
    assert counts == {"n_episodes": 4, "n_done": 4, "n_failed": 2}


def test_a_watched_experiment_is_ended_before_its_end(tmp_path):
    script = script_of(tmp_path)
    with Board(base=tmp_path / "runs", scripts=[script]) as board:
        board.watch(script)
        settled(board, "ready")
        for call in (board.reset, lambda: board.remove("noop"), lambda: board.restart("noop")):
            with pytest.raises(WrongStateError, match="experiment 'two' is being watched"):
                call()
        with pytest.raises(WrongStateError, match="experiment 'two' is being played"):
            board.watch(script)
        board.step(["noop"])
        until(board, lambda shown: card_of(shown, "noop")["step"] == 1)
        board.unwatch()
        assert board.snapshot()["experiment"] is None
        assert board.snapshot()["cards"] == []
        with pytest.raises(WrongStateError, match="no experiment is watched"):
            board.unwatch()
        board.watch(script)
        settled(board, "ready")
    for folder in ("two", "two-2"):
        assert (tmp_path / "runs" / folder / "results.json").is_file()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise SystemExit(3)", "because it exits (status 3)"),
        ("experiment = 3", "expected an Experiment, got 3"),
    ],
)
def test_a_script_that_cannot_be_played_says_so_on_the_page(tmp_path, text, said):
    script = tmp_path / "wrong.py"
    script.write_text(text)
    with Board(base=tmp_path, scripts=[script]) as board:
        board.watch(str(script))
        shown = until(board, lambda shown: shown["experiment"]["state"] != "starting")
        assert shown["experiment"]["state"] == "failed"
        assert said in shown["experiment"]["message"]
        board.unwatch()
        with pytest.raises(ValueError, match="script: expected one of"):
            board.watch("another.py")
