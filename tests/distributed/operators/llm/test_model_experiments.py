"""Experiments with language models, each a process, which ask a scripted one."""

from __future__ import annotations

import chess
from left_records import records

from parllel.distributed.operators import (
    Experiment,
    MultiAgentConfig,
    OperatorConfig,
)
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer

CHESS = "pettingzoo/classic/chess_v6"
FOOLS_MATE = ("f2f3", "e7e5", "g2g4", "d8h4")


def position_in(messages):
    """Return the board of the last FEN that a dialogue has shown; None if it has shown none."""
    fens = [
        m["content"].rpartition("FEN: ")[2].splitlines()[0]
        for m in messages
        if "FEN: " in m["content"]
    ]
    return chess.Board(fens[-1]) if fens else None


def fools(messages):
    """Ask for the board, then play the next move of the fool's mate; White errs in its first."""
    board = position_in(messages)
    if board is None:
        assert messages[-1]["content"].startswith("It is your move as ")
        return "Where do we stand?\nget_current_board"
    move = FOOLS_MATE[2 * (board.fullmove_number - 1) + (not board.turn)]
    if move == "f2f3" and "FEN: " in messages[-1]["content"]:
        return "make move f2f5"
    return f"Here I go: make move {move}"


def models_game(url, **options):
    players = {}
    for player, name in (("player_0", "white"), ("player_1", "black")):
        settings = {"model": name, "base_url": url, **options.pop(name, {})}
        players[player] = OperatorConfig("llm", name, settings=settings)
    return MultiAgentConfig("models", CHESS, players, **options)


def played(game, folder, seeds=(1,)):
    result = Experiment("chess", [game], seeds=seeds).run(folder)
    steps, episodes = (records(result.folder, "chess_models", k) for k in ("steps", "episodes"))
    return result, steps, episodes


def test_two_models_play_the_fools_mate(tmp_path):
    with ScriptedServer([Rule(fools, usage=(50, 5))]) as server:
        result, steps, episodes = played(models_game(server.base_url), tmp_path)
    assert result.failures == ()
    assert [step["parsed"] for step in steps] == list(FOOLS_MATE)
    assert [step["raw"] for step in steps] == [f"Here I go: make move {m}" for m in FOOLS_MATE]
    # The board, the move; White's first move was corrected.
    assert [step["tokens"] for step in steps] == [165, 110, 110, 110]
    assert [step["illegal"] for step in steps] == [False] * 4
    assert all(step["executed"] == step["action"] for step in steps)
    found = {(e["operator_id"], e["total_reward"], e["tokens"], e["terminated"]) for e in episodes}
    assert found == {("white", -1.0, 275, True), ("black", 1.0, 220, True)}
    # Each was asked as the model of its own settings, and told its own colour.
    sides = {(r.body["model"], r.messages[1]["content"]) for r in server.requests}
    assert sides == {
        ("white", "It is your move as White."),
        ("black", "It is your move as Black."),
    }
