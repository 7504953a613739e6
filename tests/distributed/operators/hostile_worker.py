"""A worker that does whatever it is asked to, of the standard library alone.

The `action` of a step is a list of what to do, in order:

    ["as", text]       have this in `raw` of its replies   "again"            write the last line again
    "reply"            answer as the protocol says; "end": as the last step of its episode, with `episode_end`
    ["say", text]      write a line as it is                ["raw", text]     the same without a newline
    ["tell", fields]   write a reply with the command's id  ["sleep", seconds]
    ["exit", code]     leave                                "kill"            be killed
    ["flood", n]       write n lines to standard output     ["errors", n]     to standard error
    ["forever", fields]  write this reply without end
    ["large", n]       answer with n bytes in `raw`         "close"           close standard output
    "fork"             start a process in a session of its own, which holds all pipes
    ["environ", name]  answer with a variable in `raw`
    "stubborn"         ignore SIGTERM from now on           "deaf"            read nothing more, for ever

With --no-ids no reply repeats the id of its command. A player answers `select_action` with the number of the
call, and does first what its observation asks for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

IDS = "--no-ids" not in sys.argv
for number in (signal.SIGTERM, signal.SIGINT):
    if "--stubborn" in sys.argv:
        signal.signal(number, signal.SIG_IGN)
steps = total = calls = 0
last = ""
more = {}


def write(text):
    global last
    last = text
    sys.stdout.write(text)
    sys.stdout.flush()


def tell(command, **fields):
    if IDS and "id" in command:
        fields["id"] = command["id"]
    write(json.dumps(fields) + "\n")


def step(command, ended=False, **fields):
    global steps, total
    steps, total = steps + 1, total + 1.0
    tell(
        command,
        type="step",
        step_index=steps,
        action=steps,
        reward=1.0,
        terminated=ended,
        truncated=False,
        episode_reward=total,
        **fields,
    )
    if ended:
        tell(
            command,
            type="episode_end",
            total_reward=total,
            episode_length=steps,
            terminated=True,
            truncated=False,
        )


def do(what, command):
    verb, *rest = [what] if isinstance(what, str) else what
    if verb == "reply":
        step(command, **more)
    elif verb == "end":
        step(command, ended=True, **more)
    elif verb == "as":
        more["raw"] = rest[0]
    elif verb == "again":
        write(last)
    elif verb == "say":
        write(rest[0] + "\n")
    elif verb == "raw":
        write(rest[0])
    elif verb == "tell":
        tell(command, **rest[0])
    elif verb == "sleep":
        time.sleep(rest[0])
    elif verb == "exit":
        print("the last words", file=sys.stderr, flush=True)
        os._exit(rest[0])
    elif verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif verb == "flood":
        for i in range(rest[0]):
            write(f"line {i}\n")
    elif verb == "forever":
        while True:
            tell(command, **rest[0])
    elif verb == "errors":
        for i in range(rest[0]):
            print("error", i, file=sys.stderr)
    elif verb == "large":
        step(command, raw="x" * rest[0])
    elif verb == "environ":
        step(command, raw=os.environ[rest[0]])
    elif verb == "close":
        os.close(1)
    elif verb == "fork":
        code = "import time; time.sleep(1000)"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    elif verb == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif verb == "deaf":
        while True:
            time.sleep(1000)


for line in sys.stdin:
    command = json.loads(line)
    more.clear()
    name = command["cmd"]
    if name == "reset":
        steps, total = 0, 0.0
        if "--never-ready" not in sys.argv:
            tell(command, type="ready", seed=command["seed"])
    elif name == "step":
        for what in command.get("action", ["reply"]):
            do(what, command)
    elif name == "ping":
        tell(command, type="pong")
    elif name == "init_agent":
        tell(command, type="agent_ready", player_id=command["player_id"])
    elif name == "select_action":
        calls += 1
        for what in command["observation"] or []:
            do(what, command)
        player = command["player_id"]
        tell(command, type="action_selected", player_id=player, action=calls, **more)
    elif name == "stop":
        tell(command, type="stopped")
        if "--stays" not in sys.argv:
            break
