"""Measure messages between agents: print tables, write JSON, and the figures in docs.

    python -m benchmarks.messaging [--quick] [--rounds N] [--output FILE]

A quick run only shows that everything works; its figures are meaningless.
"""

from __future__ import annotations

import argparse

from benchmarks.command import Command
from benchmarks.harness.results import Report
from benchmarks.messaging.report import answers, markdown
from benchmarks.messaging.rounds import (
    FULL,
    QUICK,
    Effort,
    growth,
    hops,
    on_kafka,
    sizes,
    steps,
    wire,
)


def measure(effort: Effort, options: argparse.Namespace) -> Report:
    """Return what the rounds came to."""
    print("growth of memory", flush=True)
    grown = growth(effort)
    print("vector steps in memory", flush=True)
    steps_s = steps(effort)
    print(f"hops of {1e3 * effort.delay_s:g} ms", flush=True)
    delayed_s = hops(effort)
    print("vector steps on Kafka", flush=True)
    kafka_s = on_kafka(effort)
    print(f"{', '.join(map(str, effort.sizes))} environments", flush=True)
    measured = {
        "delay_s": effort.delay_s,
        "grown_bytes": grown,
        "grown_after": {"steps": effort.long_steps, "renames": effort.renames},
        "steps_s": steps_s,
        "delayed_s": delayed_s,
        "kafka_s": kafka_s,
        # As JSON has them: keys of dicts are strings.
        "sizes_s": {
            what: {str(n): took for n, took in found.items()}
            for what, found in sizes(effort).items()
        },
        "wire": wire(),
    }
    return {**measured, "answers": [answer.as_dict() for answer in answers(measured)]}


COMMAND = Command("messaging", "messages between agents", FULL, QUICK, measure, markdown)


if __name__ == "__main__":
    COMMAND.run()
