"""Step an environment for each line of standard input and answer in JSON: the least that such a worker does.

python echo_worker.py ENV_ID
"""

from __future__ import annotations

import json
import sys

import gymnasium as gym


def main(env_id: str) -> None:
    """Answer until standard input ends."""
    env = gym.make(env_id)
    env.action_space.seed(0)
    env.reset(seed=0)
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        json.loads(line)
        action = env.action_space.sample()
        _, reward, terminated, truncated, _ = env.step(action)
        reply = {"type": "step", "action": int(action), "reward": float(reward)}
        reply |= {"terminated": bool(terminated), "truncated": bool(truncated)}
        out.write(json.dumps(reply).encode() + b"\n")
        out.flush()
        if terminated or truncated:
            env.reset()


if __name__ == "__main__":
    main(*sys.argv[1:])
