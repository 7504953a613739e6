"""Measure what a step costs at each distance: print the table, write JSON, a chart, and the figures in docs.

    python -m benchmarks.distances [--quick] [--rounds N] [--output FILE]

A quick run shows that everything works; its figures say nothing.
"""

from __future__ import annotations

import argparse

from benchmarks.command import Command
from benchmarks.distances.report import draw, markdown
from benchmarks.distances.rounds import FULL, QUICK, Effort, distances
from benchmarks.harness.results import Report


def measure(effort: Effort, options: argparse.Namespace) -> Report:
    """Return what the rounds came to."""
    return {"seconds": distances(effort)}


COMMAND = Command("distances", "a policy at each distance", FULL, QUICK, measure, markdown, draw)


if __name__ == "__main__":
    COMMAND.run()
