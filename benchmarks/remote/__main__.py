"""Measure agents behind URLs: print tables, write JSON, and the figures in docs.

    python -m benchmarks.remote [--quick] [--rounds N] [--output FILE]

The peer runs in a virtual environment made by `python benchmarks/peers/venvs.py kaggle`. A quick run shows
that everything works; its figures say nothing.
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
from benchmarks.pages import results_of, update_pages
from benchmarks.peers.venvs import python_of
from benchmarks.remote.report import answers, markdown
from benchmarks.remote.rounds import FULL, QUICK, guards, round_trips, session_spread

RESULTS = results_of("remote")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments, measure, print and write."""
    options = parse(arguments)
    # Ended from outside, it ends what it started, as for Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    effort = QUICK if options.quick else FULL
    if options.rounds is not None:
        effort = replace(effort, rounds=options.rounds)
    print("round trips of one client", flush=True)
    rates = round_trips(effort, python_of("kaggle"))
    print(f"{effort.sessions} sessions at once", flush=True)
    spread = session_spread(effort)
    print("what the guards cost", flush=True)
    cpu = guards(effort)
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "settings": {"quick": options.quick, **asdict(effort)},
        "rates": rates,
        "sessions": spread,
        "guards_cpu_s": cpu,
        "answers": [answer.as_dict() for answer in answers(rates, spread, cpu)],
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
        prog="python -m benchmarks.remote", description="Measure agents behind URLs."
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
