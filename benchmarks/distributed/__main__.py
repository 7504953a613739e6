"""Measure what a step costs wherever it runs: print the table, write JSON, a chart, and the figures in docs.

    python -m benchmarks.distributed [--quick] [--rounds N] [--output FILE]

A quick run only shows that everything works; its figures are meaningless.
"""

from __future__ import annotations

import argparse

from benchmarks.command import Command
from benchmarks.distributed.report import draw, markdown
from benchmarks.distributed.rounds import FULL, QUICK, Effort, distributed
from benchmarks.harness.results import Report


def measure(effort: Effort, options: argparse.Namespace) -> Report:
    """Return what the rounds came to."""
    return {"seconds": distributed(effort)}


COMMAND = Command("distributed", "a policy wherever it runs", FULL, QUICK, measure, markdown, draw)


if __name__ == "__main__":
    COMMAND.run()
