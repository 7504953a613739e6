"""Rows in a table that any program reads."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from parllel.logging.files import prepare_file
from parllel.logging.writer import Level, Number, Writer


class CsvWriter(Writer):
    """Append rows to a CSV file with a header; the first column is `step`.

    A key that appears for the first time becomes a new column: the file is written anew beside the
    old one, which it then replaces, so no moment exists in which rows are missing. Cells without a
    value are empty; numbers that are not finite are `nan`, `inf` and `-inf`.

    Args:
        folder: created if it is missing.
        name: of the file; an existing one is continued, with its columns.

    Raises:
        OSError: if the file cannot be written.
        ValueError: if an existing file has another first column than `step`.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str = "progress.csv") -> None:
        self.path = prepare_file("CsvWriter", folder, name)
        self._columns = self._existing_columns()

    def _existing_columns(self) -> list[str]:
        with self.path.open(newline="", encoding="utf-8") as file:
            columns = next(csv.reader(file), ["step"])
        if columns[:1] != ["step"]:
            raise ValueError(
                f"CsvWriter: {self.path}: expected a table whose first column is 'step', "
                f"got columns {columns}"
            )
        return columns

    def write(self, step: int, values: Mapping[str, Number]) -> None:
        """Append a row."""
        new = [key for key in values if key not in self._columns]
        columns = self._columns + new
        if new and self.path.exists() and self.path.stat().st_size:
            self._rewrite(columns)
        self._columns = columns
        row = {"step": step, **values}
        with self.path.open("ab") as file:
            if file.tell() == 0:
                file.write(_line(columns))
            elif not self._ends_with_newline():  # the row that a crash cut short
                file.write(b"\n")
            file.write(_line([row.get(key, "") for key in columns]))

    def _ends_with_newline(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _rewrite(self, columns: list[str]) -> None:
        new = self.path.with_name(self.path.name + ".new")
        try:
            self._copy(new, columns)
            os.replace(new, self.path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def _copy(self, new: Path, columns: list[str]) -> None:
        with self.path.open(newline="", encoding="utf-8") as old, new.open("wb") as file:
            rows = csv.reader(old)
            next(rows, None)
            file.write(_line(columns))
            file.writelines(_line(row + [""] * (len(columns) - len(row))) for row in rows)
            file.flush()
            os.fsync(file.fileno())

    def message(self, level: Level, text: str) -> None:
        """Do nothing: a table has no place for text."""

    def close(self) -> None:
        """Do nothing: the file is open only while it is written."""


def _line(cells: Iterable[Any]) -> bytes:
    """Return one line as bytes, so that it can be appended without asking how a file is encoded."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue().encode()
