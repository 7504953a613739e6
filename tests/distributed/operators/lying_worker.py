"""A worker of the standard library alone, with episodes of three steps and a reward of 1, which lies as told.

python lying_worker.py JSON     fields by reply: {"ready": ..., "step 2": ..., "episode_end": ...}
"""

from __future__ import annotations

import json
import sys


def lying(lies, **options):
    """Return an operator of this worker."""
    from parllel.distributed.operators import OperatorConfig

    words = [sys.executable, "-S", __file__, json.dumps(lies)]
    return OperatorConfig("program", "liar", "three", worker=words, **options)


def main() -> None:
    lies = json.loads(sys.argv[1])
    step = 0
    for line in sys.stdin:
        command = json.loads(line)
        step = 0 if command["cmd"] == "reset" else step + 1
        for kind, reply in replies_to(command, step).items():
            print(json.dumps({**reply, **lies.get(kind, {})}), flush=True)
        if command["cmd"] == "stop":
            return


def replies_to(command, step):
    if command["cmd"] == "stop":
        return {"stopped": {"type": "stopped"}}
    if command["cmd"] == "reset":
        return {"ready": {"type": "ready", "seed": command["seed"]}}
    flags = {"terminated": step == 3, "truncated": False}
    sums = {"reward": 1.0, "episode_reward": float(step)}
    replies = {f"step {step}": {"type": "step", "step_index": step, "action": 0, **sums, **flags}}
    if step == 3:
        end = {"type": "episode_end", "total_reward": 3.0, "episode_length": 3, **flags}
        replies["episode_end"] = end
    return replies


if __name__ == "__main__":
    main()
