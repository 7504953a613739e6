"""A worker of the standard library alone, whose episodes have five steps, and which waits within a step.

python held_worker.py FOLDER NAME

FOLDER/NAME.hold   while it is there, a step is not answered; FOLDER/NAME.within is made when one has begun
FOLDER/NAME.error  a step is answered by an error
FOLDER/NAME.draw   pictures are sent where they are wished for
FOLDER/NAME.pid    its process id
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from pathlib import Path

# One black pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    hold, within, error, draw = (
        folder / f"{name}.{s}" for s in ("hold", "within", "error", "draw")
    )
    (folder / f"{name}.pid").write_text(str(os.getpid()))
    seed = step = 0
    for line in sys.stdin:
        command = json.loads(line)
        payload = {}
        if "frame" in command and draw.exists():
            payload = {"render_payload": {"mode": "png", "data": base64.b64encode(PNG).decode()}}
        if command["cmd"] == "stop":
            say({"type": "stopped"})
            return
        if command["cmd"] == "reset":
            seed, step = command["seed"], 0
            say({"type": "ready", "seed": seed, **payload})
            continue
        if hold.exists():
            within.touch()
            while hold.exists():
                time.sleep(0.01)
        if error.exists():
            say({"type": "error", "message": "held: no idea"})
            continue
        step += 1
        over = step == 5
        flags = {"terminated": over, "truncated": False}
        sums = {"reward": seed, "episode_reward": step * seed}
        raw = "with a picture" if "frame" in command else "without"
        say(
            {
                "type": "step",
                "step_index": step,
                "action": 0,
                "raw": raw,
                **sums,
                **flags,
                **payload,
            }
        )
        if over:
            say({"type": "episode_end", "total_reward": 5 * seed, "episode_length": 5, **flags})


def say(reply: object) -> None:
    print(json.dumps(reply), flush=True)


main()
