"""Rows and messages in a text file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from parllel.logging.files import append_lines, prepare_file
from parllel.logging.writer import FileWriter, Level, Number


class TextWriter(FileWriter):
    """Append rows and messages to a readable text file, each with the local time.

    Args:
        folder: folder of the file, created if it is missing.
        name: name of the file. An existing file is continued.

    Raises:
        OSError: if the file cannot be written.
    """

    shows_messages: ClassVar[bool] = True

    def __init__(self, folder: str | os.PathLike[str], name: str = "log.txt") -> None:
        self.path = prepare_file("TextWriter", folder, name)

    def write(self, step: int, values: Mapping[str, Number]) -> None:
        """Append one line per value below a line with the step."""
        width = max(map(len, values), default=0)
        lines = [f"step {step}", *(f"    {key:<{width}}  {values[key]!r}" for key in values)]
        self._append("\n".join(lines))

    def message(self, level: Level, text: str) -> None:
        """Append a message; further lines of it are indented."""
        self._append(f"{level}: {text}".replace("\n", "\n    "))

    def rewind(self, step: int) -> None:
        """Append a line about the rewind. Earlier rows stay in the file."""
        self._append(f"rewound to step {step}: rows of later steps above this line do not count")

    def _append(self, text: str) -> None:
        time = datetime.now().astimezone().isoformat(" ", "seconds")
        # Messages hold paths and what others raised: not all of that can be encoded.
        append_lines(self.path, f"{time} {text}\n".encode(errors="backslashreplace"))
