"""A writer of a Logger that may fail and recover."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from parllel.logging.writer import Level, Number, Writer

# A message for the other writers, when this one fails or works again.
Remark: TypeAlias = tuple[Level, str]


class GuardedWriter:
    """Pass rows and messages on to a writer; a failing one is tried again with each row.

    A disk that was full has room again some day, and a log that goes on then is worth more than one
    that ends. In between there is one warning, and when it works again the number of missing rows.

    Attributes:
        writer: gets everything.
        works: whether the writer did what it was last asked for.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.works = True
        self._missing = 0  # rows since it failed
        self._rewind_to: int | None = None  # until the writer has done so

    @property
    def shows_messages(self) -> bool:
        """Whether a person will find a message that is sent now."""
        return self.works and self.writer.shows_messages

    def write(self, step: int, values: Mapping[str, Number]) -> Remark | None:
        """Write a row, and return a remark if the writer has failed or works again."""
        return self._try(lambda: self.writer.write(step, values), rows=1)

    def message(self, level: Level, text: str) -> Remark | None:
        """Write a message, unless the writer has failed."""
        # A short line may fit where a row does not, and would pass for a writer that works again.
        return self._try(lambda: self.writer.message(level, text)) if self.works else None

    def rewind(self, step: int) -> Remark | None:
        """Rewind the writer, now or before the next row that it takes."""
        self._rewind_to = step if self._rewind_to is None else min(step, self._rewind_to)
        return self._try(lambda: None)

    def sync(self) -> Remark | None:
        """Sync the writer, unless it fails."""
        return self._try(self.writer.sync) if self.works else None

    def _try(self, action: Callable[[], None], rows: int = 0) -> Remark | None:
        try:
            if self._rewind_to is not None:
                self.writer.rewind(self._rewind_to)
                self._rewind_to = None
            action()
        except Exception as error:
            return self._failed(error, rows)
        return self._worked()

    def _failed(self, error: Exception, rows: int) -> Remark | None:
        self._missing += rows
        if not self.works:
            return None
        self.works = False
        return "warning", f"{self._name} failed, and is tried again with each row: {error!r}"

    def _worked(self) -> Remark | None:
        if self.works:
            return None
        self.works = True
        missing, self._missing = self._missing, 0
        return "notice", f"{self._name} works again; rows that it misses: {missing}"

    @property
    def _name(self) -> str:
        return type(self.writer).__name__
