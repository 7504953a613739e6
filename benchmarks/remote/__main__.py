"""Measure agents behind URLs: print tables, write JSON, and the figures in docs.

    python -m benchmarks.remote [--quick] [--rounds N] [--output FILE]

The peer runs in a virtual environment made by `python benchmarks/peers/venvs.py kaggle`. A quick run shows
that everything works; its figures say nothing.
"""

from __future__ import annotations

import argparse

from benchmarks.command import Command
from benchmarks.harness.results import Report
from benchmarks.peers.venvs import python_of
from benchmarks.remote.report import answers, markdown
from benchmarks.remote.rounds import FULL, QUICK, Effort, guards, round_trips, session_spread


def measure(effort: Effort, options: argparse.Namespace) -> Report:
    """Return what the rounds came to."""
    print("round trips of one client", flush=True)
    rates = round_trips(effort, python_of("kaggle"))
    print(f"{effort.sessions} sessions at once", flush=True)
    spread = session_spread(effort)
    print("what the guards cost", flush=True)
    cpu = guards(effort)
    return {
        "rates": rates,
        "sessions": spread,
        "guards_cpu_s": cpu,
        "answers": [answer.as_dict() for answer in answers(rates, spread, cpu)],
    }


COMMAND = Command("remote", "agents behind URLs", FULL, QUICK, measure, markdown)


if __name__ == "__main__":
    COMMAND.run()
