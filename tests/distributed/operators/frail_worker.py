"""A worker of the standard library alone, whose episodes have five steps, and which fails as its words say.

python frail_worker.py [die=SEED] [hang=SEED] [error=SEED] [never] [slow=SECONDS] [stubborn]
                           [print=SEED] [endless=SEED] [miscount=SEED] [huge=SEED]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time


def main() -> None:
    words = dict(word.partition("=")[::2] for word in sys.argv[1:])
    if "never" in words:
        sys.exit("frail: never starts")
    if "stubborn" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    seed = step = 0
    for line in sys.stdin:
        command = json.loads(line)
        if command["cmd"] == "stop":
            if "stubborn" in words:
                time.sleep(1000)
            say({"type": "stopped"})
            return
        if command["cmd"] == "reset":
            seed, step = command["seed"], 0
            say({"type": "ready", "seed": seed})
            continue
        step += 1
        time.sleep(float(words.get("slow", 0)))
        if step == 3 and words.get("die") == str(seed):
            os._exit(7)
        if step == 3 and words.get("hang") == str(seed):
            time.sleep(1000)
        if step == 3 and words.get("error") == str(seed):
            say({"type": "error", "message": "frail: no idea"})
            continue
        if step == 3 and words.get("print") == str(seed):
            print("a library says hello", flush=True)
        over = step == 5
        flags = {"terminated": over, "truncated": False}
        reward = 1e308 if words.get("huge") == str(seed) else seed
        # JSON has no infinity.
        sums = {"reward": reward, "episode_reward": min(step * reward, 1e308)}
        say({"type": "step", "step_index": step, "action": 0, **sums, **flags})
        if over and words.get("endless") != str(seed):
            length = 4 if words.get("miscount") == str(seed) else 5
            end = {"total_reward": 5 * seed, "episode_length": length}
            say({"type": "episode_end", **end, **flags})


def say(reply: object) -> None:
    print(json.dumps(reply), flush=True)


main()
