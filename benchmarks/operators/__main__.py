"""Measure operators: print tables, write JSON, and the figures in docs.

    python -m benchmarks.operators [--quick] [--rounds N] [--output FILE]

A quick run only shows that everything works; its figures are meaningless.
"""

from __future__ import annotations

import argparse

from benchmarks.command import Command
from benchmarks.harness.results import Report
from benchmarks.operators.report import answers, markdown
from benchmarks.operators.rounds import (
    FULL,
    QUICK,
    Effort,
    experiment,
    frames,
    starts,
    steps,
    stops,
)


def measure(effort: Effort, options: argparse.Namespace) -> Report:
    """Return what the rounds came to."""
    print("steps of CartPole", flush=True)
    rates = steps(effort)
    print("pictures", flush=True)
    pictures = frames(effort)
    print("starts", flush=True)
    started = starts(effort)
    print(f"{effort.stubborn} operators that ignore SIGTERM", flush=True)
    stopped = stops(effort)
    print("an experiment of four operators", flush=True)
    played = experiment(effort)
    found = answers(rates, pictures, stopped, started)
    return {
        "rates": rates,
        "pictures": pictures,
        "starts_s": started,
        "stops_s": stopped,
        "experiment": played,
        "answers": [answer.as_dict() for answer in found],
    }


COMMAND = Command("operators", "operators", FULL, QUICK, measure, markdown)


if __name__ == "__main__":
    COMMAND.run()
