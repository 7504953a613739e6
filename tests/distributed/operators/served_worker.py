"""A worker of `serve` that prints, forks or fails in the ways its arguments name."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

import numpy as np
from asked_runtime import Counting

from parllel.distributed.operators import Decision, WorkerAgent, load_failed, serve, take_streams

WAYS = set(sys.argv[1:])


def print_everywhere(where):
    print(f"python {where}")
    ctypes.CDLL(None).puts(f"libc {where}".encode())
    os.write(1, f"descriptor {where}\n".encode())
    subprocess.run(["sh", "-c", f"echo child {where}; cat"], check=True)
    print(f"read {sys.stdin.read()!r} {where}")


class Agent(WorkerAgent):
    def bind(self, observation_space, action_space):
        if "cannot bind" in WAYS:
            raise FileNotFoundError("runs/none")

    def decide(self, observation, info):
        if "prints" in WAYS:
            print_everywhere("in decide")
        if "forks" in WAYS and os.fork() == 0:
            # Lives on without the worker, as a pool of multiprocessing would.
            print(f"forked {os.getpid()}", file=sys.stderr, flush=True)
            time.sleep(600)
        if "catches" in WAYS:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)
            except BaseException:
                print("caught", file=sys.stderr)
        if "sleeps" in WAYS:
            print("asleep", file=sys.stderr, flush=True)
            time.sleep(600)
        return Decision(1)

    def close(self):
        print("agent closed", file=sys.stderr, flush=True)
        if "cannot close" in WAYS:
            raise OSError("stuck")


class Large(Counting):
    def render(self):
        return np.random.default_rng(0).integers(0, 256, (1000, 1000, 3), np.uint8)

    def close(self):
        print("environment closed", file=sys.stderr, flush=True)


def make():
    if "no environment" in WAYS:
        raise LookupError("no such world")
    if "exits" in WAYS:
        sys.exit("the simulator has no licence")
    return Counting() if "small" in WAYS else Large([1.0] * 5)


def main():
    take_streams()
    if "prints" in WAYS:
        print_everywhere("while loading")
    if "cannot load" in WAYS:
        return load_failed(FileNotFoundError(2, "No such file or directory", "runs/none"))
    return serve(3 if "no agent" in WAYS else Agent(), make)


sys.exit(main())
