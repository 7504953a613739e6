"""The interface of writers, the outputs of a Logger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.logging.files import sync_file

Number: TypeAlias = int | float
Level: TypeAlias = Literal["notice", "warning"]


class Writer(ABC):
    """Writes rows of numbers, and messages, to one destination.

    A writer may raise errors at any time. The Logger warns once, continues, and tries the writer
    again with each row. A row must not be written partially if the writer raises.

    Attributes:
        shows_messages: whether a person will find messages where this writer puts them. If no
            writer of a Logger does, messages go to the standard error stream.
        shows_pictures: whether `histogram` and `picture` do anything.
    """

    shows_messages: ClassVar[bool] = False
    shows_pictures: ClassVar[bool] = False

    @abstractmethod
    def write(self, step: int, values: Mapping[str, Number]) -> None:
        """Write the row of `step`; it must have left this process on return."""

    @abstractmethod
    def message(self, level: Level, text: str) -> None:
        """Write a notice or a warning, or do nothing where there is no place for text."""

    def histogram(self, step: int, key: str, values: NDArray[np.float64]) -> None:
        """Write how numbers [n] of `step` are distributed. Does nothing unless overridden."""

    def picture(self, step: int, key: str, picture: bytes) -> None:
        """Write a picture of `step`, a PNG or GIF file. Does nothing unless overridden."""

    def rewind(self, step: int) -> None:
        """Drop the rows after `step`. Does nothing unless overridden.

        A resumed run continues from a checkpoint and rewrites the rows after it.
        """

    def sync(self) -> None:
        """Flush the written rows to disk, so that they survive a power cut. Does nothing unless overridden.

        Called before each checkpoint, because a run resumed from it does not rewrite the rows before it.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files and connections. Idempotent."""


class FileWriter(Writer):
    """Appends to a file, which is open only during a write.

    Attributes:
        path: path of the file.
    """

    path: Path

    def sync(self) -> None:
        """Make the file survive a power cut."""
        sync_file(self.path)

    def close(self) -> None:
        """Do nothing: the file is open only while it is written."""


def check_key(owner: str, key: str) -> None:
    """Refuse a key that a table could not have as the name of a column, or not safely.

    Raises:
        TypeError: if it is no string.
        ValueError: if it is empty, or a spreadsheet would take it for a formula, which may start programs.
    """
    if not isinstance(key, str):
        raise TypeError(f"{owner}: key: expected a string, got {key!r}")
    if not key:
        raise ValueError(f"{owner}: key: expected a name, got {key!r}")
    if key.lstrip()[:1] in tuple("=+-@"):
        raise ValueError(
            f"{owner}: key: expected a name that does not begin with =, +, - or @, because "
            f"spreadsheets read such a column as a formula, got {key!r}"
        )
