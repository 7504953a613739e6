"""A worker in the style of MOSAIC's: commands from standard input, replies printed, frames as nested lists.

python mosaic_worker.py ENV frames|none

Written from the description of its protocol. ENV is the id of an environment, or `file.py:function`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from typing import Any

import gymnasium as gym


def make_env(name: str) -> gym.Env[Any, Any]:
    """Return the environment, which can draw itself."""
    file, colon, function = name.rpartition(":")
    if colon and file.endswith(".py"):
        env: gym.Env[Any, Any] = runpy.run_path(file)[function]()
        return env
    return gym.make(name, render_mode="rgb_array")


class InteractiveRuntime:
    """Commands to an environment with a random policy."""

    def __init__(self, env_id: str, frames: bool) -> None:
        self._env, self._env_id, self._frames = make_env(env_id), env_id, frames
        self._steps, self._return = 0, 0.0

    def run(self) -> None:
        """Answer until a stop, or the end of standard input."""
        for line in sys.stdin:
            command = json.loads(line)
            if command["cmd"] == "reset":
                self._reset(command["seed"])
            elif command["cmd"] == "step":
                self._step()
            else:
                self._say({"type": "stopped"})
                break

    def _reset(self, seed: int) -> None:
        observation, _ = self._env.reset(seed=seed)
        self._env.action_space.seed(seed)
        self._steps, self._return = 0, 0.0
        shape = list(getattr(observation, "shape", ()))
        self._say({"type": "ready", "env_id": self._env_id, "observation_shape": shape})

    def _step(self) -> None:
        action = self._env.action_space.sample()
        _, reward, terminated, truncated, _ = self._env.step(action)
        self._steps += 1
        self._return += float(reward)
        reply = {
            "type": "step",
            "step_index": self._steps,
            "action": int(action),
            "reward": float(reward),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "episode_reward": self._return,
        }
        if self._frames:
            frame: Any = self._env.render()
            height, width = frame.shape[:2]
            payload = {"mode": "rgb", "rgb": frame.tolist(), "width": width, "height": height}
            reply["render_payload"] = payload
        self._say(reply)
        if terminated or truncated:
            self._say({"type": "episode_end", "total_reward": self._return})

    def _say(self, reply: dict[str, Any]) -> None:
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame looks for a screen
    InteractiveRuntime(sys.argv[1], sys.argv[2] == "frames").run()
