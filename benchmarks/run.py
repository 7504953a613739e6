"""Run all comparisons: print the table, and write the figures as JSON and into docs/measured.md.

    python benchmarks/run.py [--quick] [--only NAME ...] [--again NAME ...] [--output FILE]

The questions are the COMPARISONS and COUNTS of each bench_*.py. Those whose figures are in files of their own
are left to their targets of the Makefile, unless they are named. Quick runs show that everything works; their
figures say little.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.command import Command, wants
from benchmarks.figures import comparison_cells, count_cells, markdown
from benchmarks.harness.measure import Answer, Comparison, Count, measure
from benchmarks.harness.results import Report, put_into

FILES = sorted(Path(__file__).parent.glob("bench_*.py"))
MODULES = [import_module(f"benchmarks.{file.stem}") for file in FILES]
COMPARISONS: list[Comparison] = [one for module in MODULES for one in module.COMPARISONS]
COUNTS: list[Count] = [one for module in MODULES for one in getattr(module, "COUNTS", ())]
OWN_FILES = {"ray-fragments", "jax", "learners", "local_rollouts", "off_policy", "replays"}


@dataclass(frozen=True)
class Effort:
    """How long to measure: pairs of batches of each comparison."""

    pairs: int = 15
    batch_s: float = 0.1


def answer_all(effort: Effort, options: argparse.Namespace) -> Report:
    """Answer the questions that are wanted, and print each answer."""
    report: Report = {"counts": [], "comparisons": [], "left_out": []}
    for count in COUNTS:
        if wants(options, count.name) and not has_own_file(count.name, options):
            report["counts"].append(answer_count(count))
            print(" | ".join(count_cells(report["counts"][-1])), flush=True)
    for comparison in COMPARISONS:
        if not wants(options, comparison.name) or has_own_file(comparison.name, options):
            continue
        why = why_left_out(comparison, options.quick and not options.only)
        if why is not None:
            report["left_out"].append({"name": comparison.name, "why": why})
            print(f"{comparison.what} | {why}", flush=True)
        else:
            answer = measure(comparison, effort.pairs, effort.batch_s)
            report["comparisons"].append(as_dict(answer))
            print(" | ".join(comparison_cells(report["comparisons"][-1])), flush=True)
    return report


def has_own_file(name: str, options: argparse.Namespace) -> bool:
    """Return whether the figures of a question belong to another file than that of all the others."""
    return name.partition("/")[0] in OWN_FILES and not (options.only or options.quick)


def why_left_out(comparison: Comparison, quick: bool) -> str | None:
    """Return why a comparison is not made, or None."""
    if comparison.missing:
        return f"needs {', '.join(comparison.missing)}"
    return "not in a quick run" if quick and not comparison.quick else None


def answer_count(count: Count) -> dict[str, Any]:
    """Count, and return the answer."""
    value = count.count()
    return {
        "name": count.name,
        "what": count.what,
        "unit": count.unit,
        "value": value,
        "target": count.at_most,
        "aim": count.aim,
        "met": value <= count.at_most,
        "aim_met": value <= count.aim,
    }


def as_dict(answer: Answer) -> dict[str, Any]:
    """Return an answer with every figure that it came from."""
    comparison, found = answer.comparison, answer.estimate
    return {
        "name": comparison.name,
        "what": comparison.what,
        "reads": f"times {comparison.reads}",
        "note": answer.note,
        "target": comparison.target,
        "aim": comparison.aim,
        "met": comparison.reaches(found, comparison.target),
        "aim_met": comparison.reaches(found, comparison.aim),
        "ratio": found._asdict(),
        "ratios": answer.ratios,
        "pairs": [
            {"ours": pair.ours._asdict(), "theirs": pair.theirs._asdict()} for pair in answer.pairs
        ],
    }


def put(path: Path, report: Report) -> Report:
    """Return what `path` holds, with the questions that were answered again."""
    return put_into(path, report, ("counts", "comparisons"))


COMMAND = Command(
    "foundation",
    "what the parts cost, against the usual way to do the same",
    Effort(),
    Effort(3, 0.005),
    answer_all,
    markdown,
    parts=[*(one.name for one in COUNTS), *(one.name for one in COMPARISONS)],
    put=put,
    numbers={},
    program="python benchmarks/run.py",
)


if __name__ == "__main__":
    COMMAND.run()
