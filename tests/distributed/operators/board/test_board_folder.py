"""What a board keeps: rounds that come in pairs, its cards for the next server, results."""

from __future__ import annotations

import json

import pytest
from boards import begin, card_of, settled, until
from left_records import records

from parllel.distributed.operators import Board, OperatorConfig
from parllel.distributed.operators.experiments.experiment_folder import (
    open_experiment,
    read_results,
)
from parllel.errors import WrongStateError


def episodes_of(folder, name):
    return [(one["episode"], one["seed"]) for one in records(folder, f"board_{name}", "episodes")]


def test_cards_that_go_on_by_themselves_play_the_same_seeds(tmp_path, held):
    with Board([held.config("a"), held.config("b")], base=tmp_path, speed=None) as board:
        board.play([], autoplay=True)
        assert (board.snapshot()["phase"], board.snapshot()["autoplay"]) == ("stopped", True)
        board.reset(10)
        board.step(["b"])
        board.play(["a"])
        until(board, lambda shown: card_of(shown, "a")["totals"]["n_ended"] >= 4)
        board.stop()
        # A card that comes later begins with a round of its own.
        board.launch(held.config("c"))
        board.play(["b", "c"])
        until(board, lambda shown: card_of(shown, "b")["totals"]["n_ended"] >= 3)
        board.play([], autoplay=False)
        # It was stopped within an episode, or between two.
        if card_of(board.snapshot(), "a")["status"] != "ended":
            board.play(["a"])
        shown = until(board, lambda shown: shown["phase"] == "stopped")
        assert {card["status"] for card in shown["cards"]} == {"ended"}
        folder = board.folder
    a, b, c = (episodes_of(folder, name) for name in "abc")
    assert a[:4] == [(0, 10), (1, 11), (2, 12), (3, 13)]
    assert b[:3] == a[:3]
    assert c[0][0] >= 4
    # The same round has the same seed, whoever plays it.
    seeds = {}
    for episode, seed in (*a, *b, *c):
        assert seeds.setdefault(episode, seed) == seed
    record = open_experiment(folder)
    (group,) = read_results(folder, record.config)
    assert [one.operator_id for one in group.operators] == ["a", "b", "c"]
    assert group.differences[0].total_reward.n == len({*a} & {*b}) >= 3
    assert json.loads((folder / "results.json").read_text())["results"][0]["group"] == group.group


def test_a_board_goes_on_with_its_folder(tmp_path, held):
    secret = OperatorConfig(
        "baseline", "b", "CartPole-v1", policy="noop", variables={"KEY": "hidden"}, max_steps=3
    )
    with Board([held.config("a"), secret], base=tmp_path) as board:
        board.set_speed(None)
        board.reset(4)
        board.play(autoplay=False)
        settled(board, "ended")
        board.reset(6, ["a"])
        board.step(["a"])
        until(board, lambda shown: card_of(shown, "a")["step"] == 1)
        folder = board.folder
        with pytest.raises(WrongStateError, match="another process"):
            Board(folder=folder)
    kept = (folder / "board.json").read_text() + (folder / "config.json").read_text()
    assert "hidden" not in kept
    # As a server that is killed while it writes leaves it.
    with (folder / "telemetry" / "board_a_steps.jsonl").open("ab") as file:
        file.write(b'{"run_id": "board_a", "epis')
    with Board(folder=folder) as board:
        shown = board.snapshot()
        assert [(card["id"], card["status"]) for card in shown["cards"]] == [
            ("a", "new"),
            ("b", "new"),
        ]
        assert (shown["speed"], shown["seed"], shown["folder"]) == (None, 6, str(folder))
        assert card_of(shown, "a")["message"] is None
        assert card_of(shown, "b")["message"].startswith(
            "the values of its variables KEY are not stored"
        )
        board.reset()
        board.play()
        settled(board, "ended")
    assert episodes_of(folder, "a") == [(0, 4), (2, 7)]
    assert episodes_of(folder, "b") == [(0, 4), (2, 7)]
    steps = records(folder, "board_a", "steps")
    assert [(one["episode"], one["step"]) for one in steps] == [
        *((0, n) for n in range(1, 6)),
        (1, 1),
        *((2, n) for n in range(1, 6)),
    ]


def test_what_a_kept_card_lacks_is_said_when_it_is_reset(tmp_path, held):
    (tmp_path / "actor.py").write_text("def act(observation):\n    return 0\n")
    policy = f"{tmp_path / 'actor.py'}:act"
    lacks = OperatorConfig("baseline", "a", "CartPole-v1", policy=policy)
    with Board([lacks, held.config("b")], base=tmp_path) as board:
        folder = board.folder
    (tmp_path / "actor.py").unlink()
    with Board(folder=folder) as board:
        board.reset()
        shown = settled(board, "died", "ready")
        assert card_of(shown, "b")["status"] == "ready"
        assert "not found" in card_of(shown, "a")["message"]
        board.restart("a")
        until(board, lambda shown: card_of(shown, "a")["status"] == "died")
        (tmp_path / "actor.py").write_text("def act(observation):\n    return 0\n")
        board.restart("a")
        settled(board, "ready")


def test_rounds_that_were_not_written_are_found_in_the_telemetry(tmp_path, held):
    with Board([held.config("a")], base=tmp_path, speed=None) as board:
        board.reset(4)
        board.play()
        settled(board, "ended")
        folder = board.folder
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "seeds": [], "episodes": 0}))
    with Board(folder=folder) as board:
        assert board.snapshot()["seed"] == 4
        board.reset()
        assert board.snapshot()["seed"] == 5


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("none", "there is no such folder"),
        ("empty", "not the folder of a run"),
        ("run", "it has no board.json"),
    ],
)
def test_a_folder_that_is_no_boards_is_refused(tmp_path, held, kind, said):
    folder = tmp_path / "x"
    if kind != "none":
        folder.mkdir()
    if kind == "run":
        with Board([], base=tmp_path) as board:
            folder = board.folder
        (folder / "board.json").unlink()
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        Board(folder=folder)


def test_an_id_stands_for_one_operator_of_a_folder(tmp_path, held):
    other = OperatorConfig("baseline", "a", "CartPole-v1", policy="noop")
    with Board([held.config("a")], base=tmp_path) as board:
        with pytest.raises(WrongStateError, match="card 'a' is already on the board"):
            board.launch(other)
        # Nothing was played: the id is free.
        board.remove("a")
        board.launch(other)
        begin(board, 1)
        board.step()
        until(board, lambda shown: shown["cards"][0]["step"] == 1)
        board.remove("a")
        with pytest.raises(WrongStateError, match="a different operator has played under this id"):
            board.launch(held.config("a"))
        with pytest.raises(
            ValueError, match=r"operator 'x': worker: program 'no-such-program' not found"
        ):
            board.launch(OperatorConfig("program", "x", worker=["no-such-program"]))


def test_a_board_that_cannot_be_made_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="program 'no-such-program' not found"):
        Board([OperatorConfig("program", "x", worker=["no-such-program"])], base=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
