"""Chess by a scripted model in the batch form of its worker, against random moves."""

from __future__ import annotations

import json

import pytest
from launching import run_worker

from parllel.distributed.operators import read_telemetry
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer

CHESS = "pettingzoo/classic/chess_v6"


def last_legal(messages):
    moves = messages[-1]["content"].partition("Legal moves: ")[2].splitlines()
    return f"make move {moves[0].split()[-1]}" if moves else "get legal moves"


def test_a_model_plays_random_moves_in_a_batch(tmp_path):
    with ScriptedServer([Rule(last_legal)]) as server:
        settings = json.dumps({"model": "any", "base_url": server.base_url})
        arguments = (f"--settings={settings}", "--seeds=2:4", "--max-steps=3", "--run-id=batch")
        done = run_worker("chess_worker", *arguments, f"--telemetry-dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    episodes = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(e["seed"], e["env_id"], e["episode_length"]) for e in episodes] == [
        (2, CHESS, 3),
        (3, CHESS, 3),
    ]
    steps = list(read_telemetry(tmp_path / "batch_steps.jsonl"))
    assert (len(steps), steps[0]["parsed"]) == (6, "h2h4")
    # White for even seeds.
    sides = [request.messages[1]["content"] for request in server.requests]
    assert sides == ["It is your move as White."] * 6 + ["It is your move as Black."] * 6


def test_random_moves_that_follow_from_the_seed_stand_in_for_a_model_without_one(tmp_path):
    with ScriptedServer([Rule("I resign.")]) as server:
        settings = json.dumps({"model": "any", "base_url": server.base_url, "attempts": 0})
        for run_id in ("a", "b"):
            done = run_worker(
                "chess_worker",
                *(f"--settings={settings}", "--seeds=1,2", "--max-steps=3", "--min-understood=0"),
                *(f"--telemetry-dir={tmp_path}", f"--run-id={run_id}"),
            )
            assert done.returncode == 0, done.stderr
    steps = {r: list(read_telemetry(tmp_path / f"{r}_steps.jsonl")) for r in ("a", "b")}
    moves = [(s["seed"], s["executed"], s["raw"], s["parsed"]) for s in steps["a"]]
    assert moves == [(s["seed"], s["executed"], s["raw"], s["parsed"]) for s in steps["b"]]
    assert len({executed for _, executed, *_ in moves}) > 3
    assert {(raw, parsed) for _, _, raw, parsed in moves} == {("I resign.", None)}


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        (
            {"model": "any"},
            ("--policy=random",),
            "--policy: expected no policy, because the settings name the model",
        ),
        ({"model": "any", "turns": 0}, (), "turns: expected a whole number of at least 1, got 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, arguments, message):
    done = run_worker("chess_worker", f"--settings={json.dumps(settings)}", *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Failed to load policy: ")
    assert message in line
