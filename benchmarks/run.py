"""Answer all questions in one run: print the table, write the figures as JSON and into docs/measured.md.

    python benchmarks/run.py [--quick] [--only NAME] [--output FILE]

Quick runs show that everything works; their figures say little.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import (
    bench_absolute_rows,
    bench_asynchronous,
    bench_awaited_rows,
    bench_frame_stack,
    bench_gae,
    bench_indexing,
    bench_load_policy,
    bench_native_env,
    bench_process_cage,
    bench_recurrent,
    bench_registered_send,
    bench_rollout_worker,
    bench_small_policy,
    bench_storage,
    bench_torch_views,
    bench_vectorized_cage,
    bench_wait,
    bench_wire,
    bench_worker_policy,
)
from benchmarks.again import check_machine, put_into
from benchmarks.figures import comparison_cells, count_cells
from benchmarks.measure import Answer, Comparison, Count, describe_machine, measure
from benchmarks.pages import results_of, update_pages

COMPARISONS: list[Comparison] = [
    *bench_indexing.COMPARISONS,
    *bench_registered_send.COMPARISONS,
    *bench_storage.COMPARISONS,
    *bench_gae.COMPARISONS,
    *bench_process_cage.COMPARISONS,
    *bench_torch_views.COMPARISONS,
    *bench_wait.COMPARISONS,
    *bench_vectorized_cage.COMPARISONS,
    *bench_native_env.COMPARISONS,
    *bench_small_policy.COMPARISONS,
    *bench_worker_policy.COMPARISONS,
    *bench_recurrent.COMPARISONS,
    *bench_frame_stack.COMPARISONS,
    *bench_asynchronous.COMPARISONS,
    *bench_absolute_rows.COMPARISONS,
    *bench_awaited_rows.COMPARISONS,
    *bench_rollout_worker.COMPARISONS,
    *bench_wire.COMPARISONS,
    *bench_load_policy.COMPARISONS,
]
COUNTS: list[Count] = [*bench_registered_send.COUNTS, *bench_frame_stack.COUNTS]
RESULTS = results_of("foundation")
PAIRS, BATCH_S = 15, 0.1
QUICK_PAIRS, QUICK_BATCH_S = 3, 0.005
WIDTHS = (72, 40, 26, 16)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments, measure, print and write."""
    options = parse(arguments)
    pairs, batch_s = (QUICK_PAIRS, QUICK_BATCH_S) if options.quick else (PAIRS, BATCH_S)
    # Described first: the load is that which was met, not that which was made.
    machine = describe_machine()
    report: dict[str, Any] = {
        "machine": machine,
        "settings": {"quick": options.quick, "pairs": pairs, "batch_s": batch_s},
        "counts": [],
        "comparisons": [],
        "left_out": [],
    }
    if options.again:
        check_machine(options.output, machine)
    print_row("what", "measured: median (95 % interval)", "target (aim)", "met")
    for count in chosen(COUNTS, options.only):
        found = answer_count(count)
        print_row(*count_cells(found))
        report["counts"].append(found)
    for comparison in chosen(COMPARISONS, options.only):
        why = why_left_out(comparison, options.quick and not options.only)
        if why is not None:
            report["left_out"].append({"name": comparison.name, "why": why})
            print_row(comparison.what, why, "", "")
        else:
            found = as_dict(measure(comparison, pairs, batch_s))
            print_row(*comparison_cells(found))
            report["comparisons"].append(found)
    if options.again:
        report = put_into(options.output, report, ("counts", "comparisons"))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nfigures: {options.output}")
    if options.output == RESULTS and not options.quick and (options.again or not options.only):
        update_pages()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; exit with a message for a name that fits nothing."""
    parser = argparse.ArgumentParser(description="Answer the questions of the benchmarks.")
    parser.add_argument("--quick", action="store_true", help="few short batches; for a look only")
    parser.add_argument(
        "--only", metavar="NAME", help="a question, such as gae, or one variant of it"
    )
    parser.add_argument(
        "--again", metavar="NAME", help="the same, and put it into what OUTPUT holds"
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.only = options.only or options.again
    if not [*chosen(COUNTS, options.only), *chosen(COMPARISONS, options.only)]:
        names = ", ".join([*(count.name for count in COUNTS), *(c.name for c in COMPARISONS)])
        parser.error(f"--only: expected one of {names}, or what stands before the /")
    return options


def chosen(questions: Sequence[Any], only: str | None) -> list[Any]:
    """Return the questions that a name means; all without one."""
    return [q for q in questions if only in (None, q.name, q.name.partition("/")[0])]


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


def print_row(*cells: str) -> None:
    """Print cells in columns."""
    line = " | ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True))
    print(line.rstrip(), flush=True)


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


if __name__ == "__main__":
    main()
