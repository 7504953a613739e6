"""Requests of the clients. Imports only the standard library: the peer's client runs without parllel."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter

MARK = "#"  # before a line that is an answer
CONFIGURATION = {
    "episodeSteps": 1000,
    "agentTimeout": 60,
    "actTimeout": 1,
    "runTimeout": 1200,
    "signs": 3,
    "tieRewardThreshold": 20,
    "maxLogLength": 1024,
}


def observation(step: int) -> dict[str, float]:
    """Return what a player of rps sees."""
    return {"step": step, "lastOpponentAction": step % 3, "remainingOverageTime": 60.0}


def expected(step: int) -> int:
    """Return what the agent answers to it."""
    return step % 3


def answer_turns(act: Callable[[int], int]) -> None:
    """Act for as many seconds as each line of standard input says, and print how often and how long that was.

    act: called with the number of a step; returns how many actions it got, having checked them.
    """
    n = sum(act(step) for step in range(8))
    print(MARK, n, flush=True)
    for line in sys.stdin:
        seconds, n, step = float(line), 0, 0
        began = perf_counter()
        while perf_counter() - began < seconds:
            n += act(step)
            step = (step + 1) % CONFIGURATION["episodeSteps"]
        print(MARK, n, perf_counter() - began, flush=True)
