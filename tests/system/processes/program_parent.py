"""A parent that starts and ends programs without pause, until it is killed.

    program_parent.py TOKEN

All that comes of it has TOKEN in its environment, or is a descendant of this process.
"""

from __future__ import annotations

import sys

from parllel.system.processes import Program

# Ignores signals, has children in its group, in a session of its own, and one that detached itself as a
# daemon does; all ignore signals as well.
NASTY = """
trap '' TERM INT HUP
sleep 60 &
setsid sh -c 'sleep 60 & exec sleep 60' &
setsid sh -c '(setsid sleep 60 &)' &
echo started
while :; do sleep 60; done
"""


def main(token: str) -> None:
    print("imported", flush=True)
    kept = []
    while True:
        program = Program(["sh", "-c", NASTY], environment={"TOKEN_OF_TEST": token})
        kept.append(program)
        print("started", flush=True)
        if len(kept) > 3:
            kept[0].read_line(30)
            kept.pop(0).end(0.01)
            print("ended", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
