"""Sections of the README that benchmarks write, between marks of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Section:
    """What one benchmark says in the README.

    Attributes:
        name: in the marks, and of the file of results.
        target: of the Makefile, which writes it.
        write: returns the section as Markdown, given the results.
    """

    name: str
    target: str
    write: Callable[[dict[str, Any]], str]

    @property
    def results(self) -> Path:
        """The committed results."""
        return RESULTS / f"{self.name}.json"

    @property
    def begin(self) -> str:
        """The mark before the section."""
        source = self.results.relative_to(ROOT)
        return f"<!-- {self.name}: written by `make {self.target}`, from {source} -->\n"

    @property
    def end(self) -> str:
        """The mark behind it."""
        return f"<!-- end of {self.name} -->\n"

    def within(self, readme: str, report: dict[str, Any]) -> str:
        """Return the text of the README with the section between its marks.

        Raises:
            ValueError: if a mark is missing.
        """
        before, begin, rest = readme.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not begin or not end:
            raise ValueError(f"README: expected the marks {self.begin!r} and {self.end!r}")
        return f"{before}{begin}\n{self.write(report)}\n{end}{after}"

    def update(self) -> None:
        """Write what the committed results say into the README."""
        report = json.loads(self.results.read_text())
        README.write_text(self.within(README.read_text(), report))
