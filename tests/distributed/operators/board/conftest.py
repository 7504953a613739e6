from __future__ import annotations

import sys

import pytest
from boards import Held, begin

from parllel.distributed.operators import Board

# A person's worker that starts fast, in place of one that imports an environment.
WORKER = """
import json, sys

step = 0
for line in sys.stdin:
    command = json.loads(line)
    cmd = command["cmd"]
    replies = [{"type": "stopped"}]
    if cmd == "reset":
        step = 0
        space = {"text": "Discrete(3)", "n": 3, "start": 0}
        replies = [{"type": "ready", "action_space": space}]
    elif cmd == "step":
        step += 1
        over = step == 3
        flags = {"terminated": over, "truncated": False}
        action = command["action"]
        replies = [{"type": "step", "step_index": step, "action": action, "reward": 1.0,
                    "episode_reward": float(step), **flags}]
        if over:
            replies.append({"type": "episode_end", "total_reward": 3.0, "episode_length": 3, **flags})
    elif cmd == "init_agent":
        replies = [{"type": "agent_ready", "player_id": command["player_id"]}]
    elif cmd == "select_action":
        replies = [{"type": "action_selected", "action": command["action"]}]
    for reply in replies:
        if "id" in command:
            reply["id"] = command["id"]
        print(json.dumps(reply), flush=True)
    if replies[0]["type"] == "stopped":
        break
"""


@pytest.fixture
def quick_people(tmp_path, monkeypatch):
    """Let the workers of people be a small program."""
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    monkeypatch.setattr(
        "parllel.distributed.operators.operator_launcher.OperatorLauncher._build_human_command",
        lambda *arguments: [sys.executable, "-S", str(worker)],
    )


@pytest.fixture
def held(tmp_path):
    """Operators whose steps the test holds."""
    return Held(tmp_path)


@pytest.fixture
def board(tmp_path, held):
    """A board with three of them, which are ready, and play as fast as they can."""
    with Board([held.config(name) for name in "abc"], base=tmp_path, speed=None) as board:
        begin(board, 1)
        yield board
