"""The command line of all benchmarks: measure, print tables, write JSON, charts and the figures in docs.

    python -m benchmarks.NAME [--quick] [--rounds N] [--only PART ...] [--output FILE]

A quick run only shows that everything works; its figures are meaningless.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchmarks.harness.machine import describe_machine
from benchmarks.harness.results import Report, check_machine, results_of, write
from benchmarks.pages import update_pages

EffortT = TypeVar("EffortT")
TURNS = {"rounds": "turns of each side"}


@dataclass(frozen=True)
class Command(Generic[EffortT]):
    """A benchmark as a command.

    Attributes:
        name: of its folder and of its results.
        what: what it measures, in a few words.
        full, quick: how long, frozen dataclasses.
        measure: returns what the report holds besides machine and settings, from the effort and the options.
        markdown: returns the tables of a report.
        draw: draws its chart to a path; None: it has none.
        parts: names that `--only` takes, or what stands before their "/"; none: it has no such option.
        sides: names that `--sides` takes, likewise.
        put: returns what a file of results holds with parts that were measured again; None: no `--again`.
        numbers: fields of the effort with an option each, and its help.
        more: adds further options.
        program: how it is started, if not by its name.
    """

    name: str
    what: str
    full: EffortT
    quick: EffortT
    measure: Callable[[EffortT, argparse.Namespace], Report]
    markdown: Callable[[Report], str]
    draw: Callable[[Report, Path], None] | None = None
    parts: Sequence[str] = ()
    sides: Sequence[str] = ()
    put: Callable[[Path, Report], Report] | None = None
    numbers: Mapping[str, str] = field(default_factory=lambda: TURNS)
    more: Callable[[argparse.ArgumentParser], Any] | None = None
    program: str | None = None

    def run(self, arguments: Sequence[str] | None = None) -> None:
        """Parse the arguments, measure, print and write."""
        options = self.parse(arguments)
        # Ended from outside, it ends what it started, as for Ctrl-C.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        # Described first: the load is that which was met, not that which was made.
        machine = describe_machine()
        if options.again:
            check_machine(options.output, machine)
        report: Report = {
            "machine": machine,
            "settings": {"quick": options.quick, **asdict(options.effort)},
            **self.measure(options.effort, options),
        }
        if options.again and self.put is not None:
            report = self.put(options.output, report)
        print(f"\n{self.markdown(report)}")
        write(options.output, report)
        print(f"figures: {options.output}")
        if self.draw is not None:
            self.draw(report, options.output.with_suffix(".png"))
        in_part = options.quick or options.sides or (options.only and not options.again)
        if options.output == results_of(self.name) and not in_part:
            update_pages()

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Return the options with the `effort`; exit with a message for what makes no sense."""
        parser = argparse.ArgumentParser(
            prog=self.program or f"python -m benchmarks.{self.name}",
            description=f"Measure {self.what}.",
        )
        parser.set_defaults(only=None, again=None, sides=None)
        parser.add_argument("--quick", action="store_true", help="few short turns; for a look only")
        for name, says in self.numbers.items():
            parser.add_argument(f"--{name}", type=int, metavar="N", help=says)
        if self.parts:
            self._add_names(parser, "only", f"some of {', '.join(self.parts)}")
        if self.put is not None:
            self._add_names(parser, "again", "the same, and put it into what OUTPUT holds")
        if self.sides:
            self._add_names(parser, "sides", "sides to measure; all without")
        parser.add_argument("--output", type=Path, default=results_of(self.name))
        if self.more is not None:
            self.more(parser)
        options = parser.parse_args(arguments)
        try:
            self._check(options)
        except ValueError as error:
            parser.error(str(error))
        return options

    @staticmethod
    def _add_names(parser: argparse.ArgumentParser, name: str, says: str) -> None:
        parser.add_argument(f"--{name}", metavar="NAME", nargs="+", help=says)

    def _check(self, options: argparse.Namespace) -> None:
        """Complete the options, or raise ValueError."""
        if options.again:
            if options.only or options.sides or not options.output.exists():
                raise ValueError("--again: expected an output that exists, no --only, no --sides")
            options.only = options.again
        stems = {part.partition("/")[0] for part in self.parts}
        for name, known, also in (("only", self.parts, stems), ("sides", self.sides, set())):
            if unknown := set(getattr(options, name) or ()) - set(known) - also:
                got = ", ".join(sorted(unknown))
                raise ValueError(f"--{name}: expected some of {', '.join(known)}, got {got}")
        given = {
            name: value for name in self.numbers if (value := getattr(options, name)) is not None
        }
        for name, value in given.items():
            if value < 1:
                raise ValueError(f"--{name}: expected 1 or more, got {value}")
        effort: Any = self.quick if options.quick else self.full
        options.effort = replace(effort, **given)


def wants(options: argparse.Namespace, name: str) -> bool:
    """Return whether a part is to be measured, by its name or by what stands before its "/"."""
    return not options.only or bool({name, name.partition("/")[0]} & set(options.only))
