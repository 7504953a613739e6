"""Rows and messages as JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from parllel.logging.files import append_lines, prepare_file, read_lines, replaced_file
from parllel.logging.json_line import json_line
from parllel.logging.writer import FileWriter, Level, Number


class JsonlWriter(FileWriter):
    """Append one JSON object per row, `{"step": 3, "loss": 0.5}`, or message, `{"notice": "..."}`.

    JSON has no numbers that are not finite: they are written as the strings "NaN", "Infinity" and
    "-Infinity", which `float` reads back, and JavaScript's `Number`.

    Args:
        folder: folder of the file, created if it is missing.
        name: name of the file. An existing file is continued.

    Raises:
        OSError: if the file cannot be written.
    """

    shows_messages: ClassVar[bool] = True

    def __init__(self, folder: str | os.PathLike[str], name: str = "progress.jsonl") -> None:
        self.path = prepare_file("JsonlWriter", folder, name)

    def write(self, step: int, values: Mapping[str, Number]) -> None:
        """Append a row."""
        self._append({"step": step, **values})

    def message(self, level: Level, text: str) -> None:
        """Append a message. Unlike a row, it has no step."""
        self._append({level: text})

    def rewind(self, step: int) -> None:
        """Drop rows of steps beyond `step`, and the messages that follow such a row.

        Messages have no step. The messages before the first dropped row are kept.
        """
        kept, dropping = [], False
        for line in read_lines(self.path).splitlines(keepends=True):
            step_of_row = _step_of(line)
            if step_of_row is not None:
                dropping = step_of_row > step
            if not dropping:
                kept.append(line)
        with replaced_file(self.path) as file:
            file.write(b"".join(kept))

    def _append(self, line: Mapping[str, Any]) -> None:
        append_lines(self.path, json_line("JsonlWriter", line))


def _step_of(line: bytes) -> int | None:
    """Return the step of a row; None for a message, and for what is no JSON."""
    try:
        content = json.loads(line)
    except ValueError:
        return None
    step = content.get("step") if isinstance(content, dict) else None
    return step if isinstance(step, int) else None
