"""A worker independent of parllel: it needs only Python, and could be written in any language.

parllel  --commands, JSON lines on stdin-->   this program
         <--replies, JSON lines on stdout--

It walks a corridor, and takes part in experiments as an operator of the kind "program":

    OperatorConfig(
        "program", "careful", "corridor", worker=["python3", "foreign_worker.py", "--care", "0.9"]
    )
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Iterator
from typing import Any

LENGTH = 9  # cells of the corridor; the goal is the last
MAX_STEPS = 40
STEP_REWARD, GOAL_REWARD = -0.01, 1.0


class Corridor:
    """A corridor and the policy that walks it.

    Args:
        care: the probability of a step towards the goal.
    """

    def __init__(self, care: float) -> None:
        self._care = care
        self._random = random.Random()
        self._cell, self._max_steps = 0, MAX_STEPS
        self.steps, self.reward_sum, self.ended = 0, 0.0, True

    def reset(self, seed: int | None, max_steps: int | None) -> None:
        """Begin an episode. The seed determines all random numbers in it."""
        self._random = random.Random(seed)
        self._cell = self._random.randrange(LENGTH - 1)
        self._max_steps = MAX_STEPS if max_steps is None else max_steps
        self.steps, self.reward_sum, self.ended = 0, 0.0, False

    def step(self) -> dict[str, Any]:
        """Take a step in a chosen direction, and return the result as a reply."""
        action = int(self._random.random() < self._care)
        self._cell = min(LENGTH - 1, max(0, self._cell + (1 if action else -1)))
        terminated = self._cell == LENGTH - 1
        reward = GOAL_REWARD if terminated else STEP_REWARD
        self.steps += 1
        self.reward_sum += reward
        truncated = not terminated and self.steps >= self._max_steps
        self.ended = terminated or truncated
        return {
            "step_index": self.steps,
            "action": action,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "episode_reward": self.reward_sum,
        }


def replies(corridor: Corridor, command: Any) -> Iterator[dict[str, Any]]:
    """Yield the replies to a command."""
    name = command.get("cmd") if isinstance(command, dict) else None
    if name == "reset":
        corridor.reset(command.get("seed"), command.get("max_steps"))
        yield {
            "type": "ready",
            "run_id": os.environ.get("OPERATOR_RUN_ID", ""),
            "env_id": "corridor",
            "seed": command.get("seed"),
            "observation_shape": [],
            "action_names": ["left", "right"],
            "protocol": 1,
        }
    elif name == "step" and corridor.ended:
        yield {"type": "error", "message": "expected a reset before this step"}
    elif name == "step":
        result = corridor.step()
        yield {"type": "step", **result}
        if corridor.ended:
            yield {
                "type": "episode_end",
                "total_reward": corridor.reward_sum,
                "episode_length": corridor.steps,
                "terminated": result["terminated"],
                "truncated": result["truncated"],
                "success": result["terminated"],
            }
    elif name == "ping":
        yield {"type": "pong"}
    elif name == "stop":
        yield {"type": "stopped"}
    else:
        yield {"type": "error", "message": f"expected a command, got {json.dumps(command)[:100]}"}


def main(care: float) -> None:
    """Answer commands from standard input, until "stop" or end of file."""
    corridor = Corridor(care)
    for line in sys.stdin:
        try:
            command = json.loads(line)
        except ValueError:
            command = line
        # Replies carry the id of their command, if it has one.
        number = {"id": command["id"]} if isinstance(command, dict) and "id" in command else {}
        for reply in replies(corridor, command):
            print(json.dumps({**reply, **number}), flush=True)
        if isinstance(command, dict) and command.get("cmd") == "stop":
            break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Walk a corridor as an operator.")
    parser.add_argument("--care", type=float, default=0.5, help="how often the step is right")
    main(parser.parse_args().care)
