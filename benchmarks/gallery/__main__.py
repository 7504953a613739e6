"""Train the gallery's entries beside Stable-Baselines3, in processes on one thread each.

    python -m benchmarks.gallery [NAME ...] [--seeds N] [--jobs N] [--timeout SECONDS] [--output FILE]

A training is written to the file as soon as it has ended, and a later start goes on with those that are
missing or failed. It may run beside other programs, on which returns do not depend.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gallery.entries import ENTRIES, Entry
from benchmarks.gallery.report import draw, markdown
from benchmarks.gallery.trainings import Trainer, begin, command_of, missing
from benchmarks.harness.results import results_of
from parllel.runs.names import nearest


def main(argv: Sequence[str] | None = None) -> None:
    """Train what the file of results lacks."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gallery",
        description="Train with tuned settings, beside Stable-Baselines3.",
    )
    names = ", ".join(entry.name for entry in ENTRIES)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {names}; all without")
    parser.add_argument("--seeds", type=int, metavar="N", help="trainings of each side and entry")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trainings at a time")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for a training")
    parser.add_argument("--output", type=Path, default=results_of("gallery"))
    options = parser.parse_args(argv)
    for name, value in (("seeds", options.seeds), ("jobs", options.jobs)):
        if value is not None and value < 1:
            parser.error(f"--{name}: expected 1 or more, got {value}")
    try:
        entries = [entry_named(name) for name in options.names] or ENTRIES
        report = begin(options.output, entries)
    except ValueError as error:
        parser.error(str(error))
    # Ended from outside, it ends what it started, as for Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    trainer = Trainer(options.output, report, options.timeout, command_of)
    trainer.run(list(missing(report, entries, options.seeds)), options.jobs)
    print(f"\n{markdown(report)}")
    draw(report, options.output.with_suffix(".png"))


def entry_named(name: str) -> Entry:
    """Return an entry.

    Raises:
        ValueError: if there is none of that name. The message suggests a similar one.
    """
    entries = {entry.name: entry for entry in ENTRIES}
    if name in entries:
        return entries[name]
    near = nearest(name, entries)
    hint = f"did you mean {near!r}?" if near else f"expected one of {', '.join(entries)}"
    raise ValueError(f"unknown entry {name!r}; {hint}")


if __name__ == "__main__":
    main()
