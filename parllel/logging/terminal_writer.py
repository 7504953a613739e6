"""Rows as tables on the terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from parllel.logging.writer import Level, Number, Writer

if TYPE_CHECKING:
    from rich.console import Console


_COLUMNS = ("mean", "std", "min", "median", "max")
_KEY_WIDTH = 24  # letters of a key that a line has room for, at least
_FIRST_TO_GO = ("median", "std", "min", "max")  # where there is no room for all


class TerminalWriter(Writer):
    """Print each row as a table, and messages as lines.

    Args:
        console: give a live progress bar's own console, so that tables appear above the bar. None
            makes one for the standard output stream.
    """

    shows_messages: ClassVar[bool] = True

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console as RichConsole

        self.console = RichConsole() if console is None else console
        self._reader_gone = False

    def write(self, step: int, values: Mapping[str, Number]) -> None:
        """Print a table; the statistics of an array share a line.

        A rule stands where the part of the keys before the first slash changes. A narrow terminal does not
        get all of the statistics; files have them.
        """
        lines = _lines(values)
        names = [name for name in _COLUMNS if any(name in cells for cells in lines.values())]
        spare = [name for name in _FIRST_TO_GO if name in names]
        table = self._table(step, lines, names)
        while spare and self._too_wide(table, max(map(len, lines))):
            names.remove(spare.pop(0))
            table = self._table(step, lines, names)
        self._print(table)

    def _too_wide(self, table: Any, longest_key: int) -> bool:
        """Return whether keys would be folded within a few letters."""
        endless = self.console.options.update(max_width=10_000)
        natural: int = self.console.measure(table, options=endless).maximum
        return natural - max(0, longest_key - _KEY_WIDTH) > self.console.width

    def _table(self, step: int, lines: Mapping[str, Mapping[str, Number]], names: list[str]) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"step {step:,}", title_justify="left", show_header=len(names) > 1)
        # Folded, not shortened: a key that ends in dots says nothing.
        table.add_column(overflow="fold")
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
        group = None
        for key, cells in lines.items():
            first = key.partition("/")[0]
            if group is not None and first != group:
                table.add_section()
            group = first
            # Text, because a str may hold what rich takes for markup.
            table.add_row(Text(key), *(_shown(cells.get(name)) for name in names))
        return table

    def message(self, level: Level, text: str) -> None:
        """Print a line, a warning in yellow."""
        style = "yellow" if level == "warning" else None
        self._print(f"{level}: {text}", style=style, markup=False, highlight=False)

    def _print(self, *objects: Any, **options: Any) -> None:
        try:
            if not self._reader_gone:
                self.console.print(*objects, **options)
                return
        except SystemExit:  # rich ends the program when the reader of a pipe is gone
            # From here on it writes to nowhere, which must not pass for working.
            self._reader_gone = True
        except Exception:
            # Rich keeps what it could not write, and would write it again with every row.
            with contextlib.suppress(Exception):
                self.console.begin_capture()
                self.console.end_capture()
            raise
        raise BrokenPipeError("nothing reads the terminal output any more")

    def close(self) -> None:
        """Do nothing: the console belongs to its maker."""


def _lines(values: Mapping[str, Number]) -> dict[str, dict[str, Number]]:
    """Group the statistics of each array; a single value is its own mean."""
    lines: dict[str, dict[str, Number]] = {}
    for key, value in values.items():
        stem, _, name = key.rpartition("/")
        # A value that was logged by the name of the array has the line of that name.
        array = f"{stem}/count" in values and stem not in values
        if array and name == "count" and f"{stem}/mean" in values:
            continue
        if array and name in _COLUMNS:
            lines.setdefault(stem, {})[name] = value
        else:
            lines[key] = {"mean": value}
    return lines


def _shown(value: Number | None) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if 1e4 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.4g}"
