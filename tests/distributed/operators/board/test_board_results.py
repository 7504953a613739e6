"""Results of a board: pairs by seed, whoever began when, died or was started again; counts that add up."""

from __future__ import annotations

import json

from boards import card_of, until

from parllel.cli import main
from parllel.distributed.operators import Board
from parllel.distributed.operators.experiments.experiment_folder import (
    open_experiment,
    read_results,
)
from parllel.distributed.operators.experiments.experiment_list import list_experiments


def results(folder):
    (group,) = read_results(folder, open_experiment(folder).config)
    return group


def counts(group):
    return {one.operator_id: (one.ended, one.failed, one.asked) for one in group.operators}


def n_played(shown, name):
    totals = card_of(shown, name)["totals"]
    return totals["n_ended"] + totals["n_failed"]


def play(board, seed, *cards):
    """Have cards play an episode to its end."""
    before = board.snapshot()
    board.reset(seed, cards)
    board.play(cards)
    # Not by their status, which is that of the episode before for a moment.
    until(board, lambda shown: all(n_played(shown, one) > n_played(before, one) for one in cards))


def test_cards_that_die_and_come_later_are_compared_by_their_seeds(tmp_path, held, capsys):
    with Board([held.config("a"), held.config("b")], base=tmp_path, speed=None) as board:
        for seed in (1, 2):
            play(board, seed, "a", "b")
        # Killed in the middle of seed 3, which another worker plays again.
        held.hold("b")
        board.reset(3)
        board.play()
        held.await_step("b")
        held.kill("b")
        until(board, lambda shown: card_of(shown, "b")["status"] == "died")
        held.let_go("b")
        board.restart("b")
        board.play(["b"])
        until(board, lambda shown: n_played(shown, "b") == 4)
        until(board, lambda shown: n_played(shown, "a") == 3)
        for seed in range(4, 9):
            play(board, seed, "a", "b")
        # The numbers of its episodes are others.
        board.launch(held.config("c"))
        for seed in range(8, 0, -1):
            if seed == 5:
                held.set("c", "error")
            play(board, seed, "c")
            held.unset("c", "error")
        folder = board.folder
        # What is shown before the board is closed is what is shown then.
        live = results(folder)
    group = results(folder)
    assert group == live
    assert counts(group) == {"a": (8, 0, 8), "b": (8, 1, 9), "c": (7, 1, 8)}
    b, c = group.differences
    assert (b.total_reward.mean, b.total_reward.n, b.failed, b.unpaired) == (0.0, 8, 0, 1)
    assert (c.total_reward.mean, c.total_reward.n, c.failed, c.unpaired) == (0.0, 7, 1, 0)
    assert group.sentences == [
        "b: 1 of 9 episodes failed and is not in its means",
        "c: 1 of 8 episodes failed and is not in its means",
        "no clear difference between b and a: 0 in each of 8 pairs, corrected for 2 comparisons; "
        "1 episode has no pair",
        "no clear difference between c and a: 0 in each of 7 pairs, corrected for 2 comparisons; "
        "1 pair is left out, as an episode failed",
    ]
    written = json.loads((folder / "results.json").read_text())["results"]
    assert [one["sentences"] for one in written] == [group.sentences]
    (listed,) = list_experiments(tmp_path)
    assert (listed["n_done"], listed["n_episodes"]) == (25, None)
    assert main(["operators", "results", str(folder)]) == 0
    printed = capsys.readouterr().out
    lines = [line.split()[:3] for line in printed.splitlines()]
    assert ["b", "8/9", "1"] in lines
    assert ["c", "7/8", "1"] in lines
    assert all(sentence in printed for sentence in group.sentences)


def test_counts_add_up_while_cards_go_on_by_themselves(tmp_path, held):
    with Board([held.config("a"), held.config("b")], base=tmp_path, speed=None) as board:
        board.play([], autoplay=True)
        board.reset(0)
        board.play()
        for n in (5, 40, 80):
            # More than the rounds that config.json has by then, which is written once a second.
            until(board, lambda shown, n=n: card_of(shown, "a")["totals"]["n_ended"] >= n)
            for ended, failed, asked in counts(results(board.folder)).values():
                assert (failed, asked) == (0, ended)
        until(board, lambda shown: card_of(shown, "b")["totals"]["n_ended"] >= 1)
        board.stop()
        folder = board.folder
    group = results(folder)
    assert all(ended == asked >= 1 for ended, _, asked in counts(group).values())
    fewer = min(one.ended for one in group.operators)
    assert group.differences[0].total_reward.n == fewer


def test_a_board_of_before_counts_no_more_than_was_played(tmp_path, held):
    with Board([held.config("a")], base=tmp_path, speed=None) as board:
        for seed in (4, 5):
            play(board, seed, "a")
        folder = board.folder
    config = json.loads((folder / "config.json").read_text())
    assert config["episodes"] is None
    # As earlier versions wrote it: the number of rounds, as of the last time that it was written.
    (folder / "config.json").write_text(json.dumps({**config, "episodes": 1}))
    assert counts(results(folder)) == {"a": (2, 0, 2)}
