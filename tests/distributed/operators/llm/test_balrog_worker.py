"""Whole episodes of MiniGrid and BabyAI by a scripted model that follows a plan, in processes."""

from __future__ import annotations

import json
import re

import pytest
from launching import run_worker
from minigrid_plans import plan_of

from parllel.distributed.operators import read_telemetry
from parllel.distributed.operators.llm.minigrid_view import describe_view
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer

RED_BALL = "BabyAI-GoToRedBall-v0"
DOOR = "MiniGrid-DoorKey-5x5-v0"
KEY = "sk-balrog-0123456789"
# What models write around the name of an action.
SAID = {
    0: "There is a wall on my right.\n\n**Turn left**",
    1: "Action: turn_right",
    2: "<think>Should I turn left? No.</think>I will go forward.",
    3: "The key is right in front of me, so I pick up the key",
    5: '{"action": "toggle"}',
}
NAMES = {0: "turn left", 1: "turn right", 2: "go forward", 3: "pick up", 5: "toggle"}


def following(*plans):
    """Return a rule whose answers are the actions of plans, one after the other."""
    actions = iter([action for plan in plans for action in plan])
    return Rule(lambda messages: SAID[next(actions)], usage=(30, 4))


def run_batch(worker, settings, *arguments):
    return run_worker(worker, f"--settings={json.dumps(settings)}", *arguments, BALROG_KEY=KEY)


@pytest.mark.parametrize(
    ("worker", "env_id", "n"), [("balrog_worker", DOOR, 2), ("barlog_worker", RED_BALL, 1)]
)
def test_episodes_are_solved_in_a_batch(worker, env_id, n, tmp_path):
    plans = [plan_of(env_id, seed) for seed in range(n)]
    with ScriptedServer([following(*(actions for actions, _ in plans))]) as server:
        settings = {"model": "any", "base_url": server.base_url, "api_key_env": "BALROG_KEY"}
        done = run_batch(
            worker,
            settings,
            f"--env-id={env_id}",
            f"--seeds=0:{n}",
            f"--telemetry-dir={tmp_path}",
            "--run-id=planned",
        )
    assert done.returncode == 0, done.stderr
    episodes = [json.loads(line) for line in done.stdout.splitlines()]
    lengths = [len(actions) for actions, _ in plans]
    assert [one["episode_length"] for one in episodes] == lengths
    assert [one["terminated"] and one["total_reward"] > 0 for one in episodes] == [True] * n
    assert [one["tokens"] for one in episodes] == [34 * length for length in lengths]
    steps = list(read_telemetry(tmp_path / "planned_steps.jsonl"))
    played = [action for actions, _ in plans for action in actions]
    assert [(s["executed"], s["parsed"], s["raw"]) for s in steps] == [
        (action, NAMES[action], SAID[action]) for action in played
    ]
    # The model was shown what an environment of its own shows this process.
    views = [view for _, views in plans for view in views]
    for request, view in zip(server.requests, views, strict=True):
        shown = describe_view(view["image"], view["direction"])
        assert request.messages[-1]["content"] == f"Mission: {view['mission']}\n{shown}"
        assert request.authorization == f"Bearer {KEY}"
    # An episode's first question has no history.
    assert len(server.requests[lengths[0] - 1].messages) == 2 + 2 * min(lengths[0] - 1, 8)
    assert all(len(server.requests[sum(lengths[:i])].messages) == 2 for i in range(n))
    records = "".join(path.read_text() for path in tmp_path.iterdir())
    assert KEY not in done.stdout + done.stderr + records


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        (
            {"model": "any"},
            ("--policy=random",),
            "--policy: expected no policy, because the settings name the model",
        ),
        ({"model": "any", "turns": 3}, (), r"settings: expected names from .*, got \['turns'\]"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(settings, arguments, message):
    done = run_batch("balrog_worker", settings, f"--env-id={RED_BALL}", *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert re.match(rf"Failed to load policy: .*{message}", line), line
