"""Experiments with language models, each a process, which ask a scripted one."""

from __future__ import annotations

import chess
import pytest
from minigrid_plans import plan_of

from parllel.distributed.operators import (
    Experiment,
    MultiAgentConfig,
    OperatorConfig,
    read_telemetry,
)
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer

CHESS = "pettingzoo/classic/chess_v6"
DOOR = "MiniGrid-DoorKey-5x5-v0"
NAMES = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
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
    telemetry = result.folder / "telemetry"
    steps = list(read_telemetry(telemetry / "chess_models_steps.jsonl"))
    return result, steps, list(read_telemetry(telemetry / "chess_models_episodes.jsonl"))


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


@pytest.mark.parametrize(
    ("rule", "rewards", "statuses"),
    [("forfeit", {-1.0, 0.0}, {"ended"}), ("error", {0.0}, {"failed"})],
)
def test_a_model_that_finds_no_legal_move_meets_the_rule_of_the_game(
    rule, rewards, statuses, tmp_path
):
    with ScriptedServer([Rule("make move e2e5", usage=(50, 5))]) as server:
        game = models_game(server.base_url, white={"attempts": 1}, illegal=rule)
        _, (step,), episodes = played(game, tmp_path)
    assert (step["action"], step["raw"], step["parsed"]) == ("e2e5", "make move e2e5", None)
    assert (step["illegal"], step["executed"], step["tokens"]) == (True, None, 110)
    assert {episode["total_reward"] for episode in episodes} == rewards
    assert {episode["status"] for episode in episodes} == statuses


def test_a_model_whose_server_fails_loses_no_more_than_the_game(tmp_path):
    rules = [
        Rule("get board", times=1, usage=(50, 5)),
        Rule("no", contains="FEN", times=1, status=400),
        Rule(fools, usage=(50, 5)),
    ]
    with ScriptedServer(rules) as server:
        _, steps, episodes = played(models_game(server.base_url), tmp_path, seeds=(1, 2))
    assert [(e["seed"], e["status"]) for e in episodes] == [
        (1, "failed"),
        (1, "failed"),
        (2, "ended"),
        (2, "ended"),
    ]
    assert "player 'player_0' (white): " in episodes[0]["failure"]
    assert "status 400: no" in episodes[0]["failure"]
    assert [step["seed"] for step in steps] == [2, 2, 2, 2]


def test_a_model_that_plans_is_compared_with_doing_nothing(tmp_path):
    plans = [plan_of(DOOR, seed)[0] for seed in range(2)]
    said = iter([NAMES[action] for plan in plans for action in plan])
    with ScriptedServer([Rule(lambda messages: next(said), usage=(30, 4))]) as server:
        settings = {"model": "any", "base_url": server.base_url}
        operators = [
            OperatorConfig("baseline", "nothing", DOOR, policy="noop", max_steps=4),
            OperatorConfig("llm", "planner", DOOR, settings=settings),
        ]
        result = Experiment("rooms", operators, seeds=range(2)).run(tmp_path)
    assert result.failures == ()
    (group,) = result.groups
    nothing, planner = group.operators
    assert (planner.ended, planner.length.mean) == (2, sum(map(len, plans)) / 2)
    assert planner.total_reward.mean > nothing.total_reward.mean == 0
    telemetry = result.folder / "telemetry"
    steps = list(read_telemetry(telemetry / "rooms_planner_steps.jsonl"))
    assert [(step["executed"], step["parsed"], step["tokens"]) for step in steps] == [
        (action, NAMES[action], 34) for plan in plans for action in plan
    ]
