"""Measure operators: print tables, write JSON, and the figures in docs.

    python -m benchmarks.operators [--quick] [--rounds N] [--output FILE]

A quick run shows that everything works; its figures say nothing.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.measure import describe_machine
from benchmarks.operators.report import answers, markdown
from benchmarks.operators.rounds import FULL, QUICK, experiment, frames, starts, steps, stops
from benchmarks.pages import results_of, update_pages

RESULTS = results_of("operators")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments, measure, print and write."""
    options = parse(arguments)
    # Ended from outside, it ends what it started, as for Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    effort = QUICK if options.quick else FULL
    if options.rounds is not None:
        effort = replace(effort, rounds=options.rounds)
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
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "settings": {"quick": options.quick, **asdict(effort)},
        "rates": rates,
        "pictures": pictures,
        "starts_s": started,
        "stops_s": stopped,
        "experiment": played,
        "answers": [answer.as_dict() for answer in found],
    }
    print(f"\n{markdown(report)}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"figures: {options.output}")
    if options.output == RESULTS and not options.quick:
        update_pages()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.operators", description="Measure operators."
    )
    parser.add_argument("--quick", action="store_true", help="few short turns; for a look only")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each side")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds: expected 1 or more, got {options.rounds}")
    return options


if __name__ == "__main__":
    main()
