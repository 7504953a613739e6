"""The command line of benchmarks: measure in rounds, print tables, write JSON, and the figures in docs.

python -m benchmarks.NAME [--quick] [--rounds N] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from benchmarks.measure import describe_machine
from benchmarks.pages import Report, results_of, update_pages


class Rounds(Protocol):
    """How long to measure: a frozen dataclass."""

    @property
    def rounds(self) -> int:
        """Turns of each side."""
        ...


EffortT = TypeVar("EffortT", bound=Rounds)


@dataclass(frozen=True)
class Command(Generic[EffortT]):
    """A benchmark as a command.

    Attributes:
        name: of its folder and of its results.
        what: what it measures, in a few words.
        full, quick: how long; a quick run shows that everything works, and its figures say nothing.
        measure: returns what the report holds besides machine and settings; "answers" as dicts.
        markdown: returns the tables of a report.
        draw: draws its chart to a path; None: it has none.
    """

    name: str
    what: str
    full: EffortT
    quick: EffortT
    measure: Callable[[EffortT], Report]
    markdown: Callable[[Report], str]
    draw: Callable[[Report, Path], None] | None = None

    def run(self, arguments: Sequence[str] | None = None) -> None:
        """Parse the arguments, measure, print and write."""
        options = self.parse(arguments)
        # Ended from outside, it ends what it started, as for Ctrl-C.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        effort = self.quick if options.quick else self.full
        if options.rounds is not None:
            effort = replace(effort, rounds=options.rounds)  # type: ignore[type-var]
        settings: dict[str, Any] = {"quick": options.quick, **asdict(effort)}  # type: ignore[call-overload]
        # Described first: the load is that which was met, not that which was made.
        report = {
            "machine": describe_machine(),
            "settings": settings,
            **self.measure(effort),
        }
        print(f"\n{self.markdown(report)}")
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(report, indent=1) + "\n")
        print(f"figures: {options.output}")
        if self.draw is not None:
            self.draw(report, options.output.with_suffix(".png"))
        if options.output == results_of(self.name) and not options.quick:
            update_pages()

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Return the options."""
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks.{self.name}", description=f"Measure {self.what}."
        )
        parser.add_argument("--quick", action="store_true", help="few short turns; for a look only")
        parser.add_argument("--rounds", type=int, metavar="N", help="turns of each side")
        parser.add_argument("--output", type=Path, default=results_of(self.name))
        options = parser.parse_args(arguments)
        if options.rounds is not None and options.rounds < 1:
            parser.error(f"--rounds: expected 1 or more, got {options.rounds}")
        return options
