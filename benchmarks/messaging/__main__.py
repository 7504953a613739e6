"""Measure messages between agents: print tables, write JSON, and the figures in docs.

    python -m benchmarks.messaging [--quick] [--only PART ... | --again PART ...] [--rounds N] [--output FILE]

A quick run only shows that everything works; its figures are meaningless.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks.command import Command, wants
from benchmarks.harness.results import Report, put_into
from benchmarks.messaging.hosts import beside_hosts
from benchmarks.messaging.report import answers, hosts_markdown, markdown
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


def measure_growth(effort: Effort) -> Report:
    """Return by how much memory grew, and after what."""
    grown_after = {"steps": effort.long_steps, "renames": effort.renames}
    return {"grown_bytes": growth(effort), "grown_after": grown_after}


def measure_delay(effort: Effort) -> Report:
    """Return the figures of delayed hops, and the delay."""
    return {"delay_s": effort.delay_s, "delayed_s": hops(effort)}


def measure_sizes(effort: Effort) -> Report:
    """Return the figures by numbers of environments. As JSON has them: keys of dicts are strings."""
    by_size = {
        what: {str(n): took for n, took in found.items()} for what, found in sizes(effort).items()
    }
    return {"sizes_s": by_size}


def measure_hosts(effort: Effort) -> Report:
    """Return the figures of leaves on hosts, and of how many environments."""
    return {"hosted_envs": effort.hosted_envs, "hosted_s": beside_hosts(effort)}


# What each measures, in a few words, in the order in which they are measured.
PARTS: dict[str, tuple[str, Callable[[Effort], Report]]] = {
    "growth": ("growth of memory", measure_growth),
    "steps": ("vector steps in memory", lambda effort: {"steps_s": steps(effort)}),
    "delay": ("delayed hops", measure_delay),
    "kafka": ("vector steps on Kafka", lambda effort: {"kafka_s": on_kafka(effort)}),
    "sizes": ("different numbers of environments", measure_sizes),
    "wire": ("records and bytes of a vector step", lambda effort: {"wire": wire()}),
    "hosts": ("leaves on two hosts", measure_hosts),
}


def measure(effort: Effort, options: argparse.Namespace) -> Report:
    """Return what the rounds came to."""
    measured: Report = {}
    for name, (what, part) in PARTS.items():
        if wants(options, name):
            print(what, flush=True)
            measured |= part(effort)
    return {**measured, "answers": [answer.as_dict() for answer in answers(measured)]}


def put(path: Path, report: Report) -> Report:
    """Return what a file of results holds, with the parts that were measured again."""
    kept = ("machine", "settings", "answers")
    measured = {name: value for name, value in report.items() if name not in kept}
    return {**put_into(path, report, ("answers",)), **measured}


def tables(report: Report) -> str:
    """Return all tables of a report."""
    return "\n".join(filter(None, (markdown(report), hosts_markdown(report))))


COMMAND = Command(
    "messaging",
    "messages between agents",
    FULL,
    QUICK,
    measure,
    tables,
    parts=[*PARTS],
    put=put,
)


if __name__ == "__main__":
    COMMAND.run()
