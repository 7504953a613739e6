"""Rows as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from parllel.logging.writer import Level, Number, Writer

if TYPE_CHECKING:
    from rich.console import Console


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

    def write(self, step: int, values: Mapping[str, Number]) -> None:
        """Print a table with a rule where the part of the keys before the first slash changes."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"step {step:,}", show_header=False, title_justify="left")
        # Folded, not shortened: a key that ends in dots says nothing.
        table.add_column(overflow="fold")
        table.add_column(justify="right", no_wrap=True)
        group = None
        for key, value in values.items():
            first = key.partition("/")[0]
            if group is not None and first != group:
                table.add_section()
            group = first
            # Text, because a str may hold what rich takes for markup.
            table.add_row(Text(key), _shown(value))
        self._print(table)

    def message(self, level: Level, text: str) -> None:
        """Print a line, a warning in yellow."""
        style = "yellow" if level == "warning" else None
        self._print(f"{level}: {text}", style=style, markup=False, highlight=False)

    def _print(self, *objects: Any, **options: Any) -> None:
        try:
            self.console.print(*objects, **options)
        except SystemExit as error:  # rich ends the program when the reader of a pipe is gone
            raise BrokenPipeError("nothing reads the terminal output any more") from error

    def close(self) -> None:
        """Do nothing: the console belongs to whoever made it."""


def _shown(value: Number) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.5g}"
