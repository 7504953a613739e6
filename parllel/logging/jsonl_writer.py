"""Rows and messages as JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from parllel.logging.files import prepare_file
from parllel.logging.writer import Level, Number, Writer


class JsonlWriter(Writer):
    """Append one JSON object per row, `{"step": 3, "loss": 0.5}`, or message, `{"notice": "..."}`.

    Numbers that are not finite are written as NaN, Infinity and -Infinity, which Python's `json`
    reads back.

    Args:
        folder: created if it is missing.
        name: of the file; an existing one is continued.

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
        """Append a message, without a step: that is how rows and messages are told apart."""
        self._append({level: text})

    def _append(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Do nothing: the file is open only while it is written."""
