"""Rows in a CSV file."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parllel.logging.files import append_lines, prepare_file, read_lines, replaced_file
from parllel.logging.writer import FileWriter, Level, Number, check_key


class CsvWriter(FileWriter):
    """Appends rows to a CSV file with a header, whose first column is `step`.

    A key that appears for the first time becomes a new column: the file is written anew beside the
    old one, which it then replaces, so no moment exists in which rows are missing. Cells without a
    value are empty; numbers that are not finite are `nan`, `inf` and `-inf`.

    Args:
        folder: folder of the file, created if it is missing.
        name: name of the file. An existing file is continued, with its columns.

    Raises:
        OSError: if the file cannot be written.
        ValueError: if the first column of an existing file is not `step`.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str = "progress.csv") -> None:
        self.path = prepare_file("CsvWriter", folder, name)
        self._columns = self._existing_columns()

    def _existing_columns(self) -> list[str]:
        table = self._read()
        if table:
            columns = table[0]
        else:
            with self.path.open("rb") as file:
                # Zeros are what a power cut leaves of bytes that had not reached the disk.
                start = file.read(len("step")).strip(b"\0")
            # Nothing, or a header that was cut short, which the first row replaces.
            columns = ["step" if b"step".startswith(start) else start.decode(errors="replace")]
        if columns[0] != "step":
            raise ValueError(
                f"CsvWriter: {self.path}: expected a table whose first column is 'step', "
                f"got columns {columns}"
            )
        return columns

    def write(self, step: int, values: Mapping[str, Number]) -> None:
        """Append a row.

        Raises:
            ValueError: for a key that a spreadsheet would interpret as a formula.
        """
        new = [key for key in values if key not in self._columns]
        if new:
            for key in new:
                check_key("CsvWriter", key)
            columns = self._columns + new
            table = self._read()
            if table:
                with replaced_file(self.path) as file:
                    file.write(_lines([columns, *table[1:]], len(columns)))
            self._columns = columns
        row = {"step": step, **values}
        cells = [row.get(key, "") for key in self._columns]
        append_lines(self.path, _line(cells), header=_line(self._columns))

    def rewind(self, step: int) -> None:
        """Drop rows of steps beyond `step`, an incomplete last row, and columns that are empty afterwards."""
        table = self._read() or [["step"]]
        rows = [row for row in table[1:] if _is_number(row[0]) and int(row[0]) <= step]
        used = [
            i
            for i in range(len(table[0]))
            if i == 0 or any(len(row) > i and row[i] for row in rows)
        ]
        columns = [table[0][i] for i in used]
        picked = [[row[i] for i in used if i < len(row)] for row in rows]
        # Without rows there is no header either, as in a new file.
        with replaced_file(self.path) as file:
            file.write(_lines([columns, *picked], len(columns)) if rows else b"")
        self._columns = columns

    def _read(self) -> list[list[str]]:
        """Return the header and the rows that the file holds, as they are there."""
        text = read_lines(self.path).decode()
        return [row for row in csv.reader(io.StringIO(text, newline="")) if row]

    def message(self, level: Level, text: str) -> None:
        """Do nothing, as a table cannot hold messages."""


def _is_number(cell: str) -> bool:
    return cell.removeprefix("-").isdecimal()


def _lines(rows: Iterable[Sequence[str]], n_columns: int) -> bytes:
    return b"".join(_line([*row, *[""] * (n_columns - len(row))]) for row in rows)


def _line(cells: Iterable[Any]) -> bytes:
    """Return one line as bytes, so that it can be appended without asking how a file is encoded."""
    buffer = io.StringIO(newline="")
    # This terminator makes the module put both characters into quotes; readers break lines at either.
    csv.writer(buffer, lineterminator="\r\n").writerow(cells)
    return buffer.getvalue()[:-2].encode() + b"\n"
