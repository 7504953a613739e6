"""Logger of rows of numbers to several writers."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TextIO, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from parllel.logging.writer import Level, Number, Writer, check_key
from parllel.types import Closeable

# Different warnings of one place that are sent on; its numbers may change for ever.
_TEXTS_OF_A_PLACE = 10
# A message for the other writers, when this one fails or works again.
_Remark: TypeAlias = tuple[Level, str]


class Logger(Closeable):
    """Collects values by key, and writes them as a row to every writer.

    Training continues when a writer raises an error (a full disk, a removed folder). The error is
    reported in a single warning, and the writer is tried again with each row. A notice reports when
    it works again and what it missed.

    Args:
        writers: writers that receive the rows and messages; closed by `close`.

    Raises:
        TypeError: if one of them is not a Writer.

    Example:
        >>> logger = Logger([])
        >>> logger.log_value("loss", 0.5)
        >>> logger.log_array("return", [1.0, 3.0])
        >>> logger.write(step=100)["return/mean"]
        2.0
    """

    def __init__(self, writers: Iterable[Writer]) -> None:
        self._writers = [_GuardedWriter(writer) for writer in _checked(writers)]
        self._row: dict[str, Number] = {}
        self._closed = False

    @property
    def writers(self) -> tuple[Writer, ...]:
        """The writers that currently work."""
        return tuple(guarded.writer for guarded in self._writers if guarded.works)

    def log_value(self, key: str, value: Any) -> None:
        """Add a number to the current row: of Python or numpy, or an array without dimensions.

        NaN and infinity are kept as they are. A bool counts as 0 or 1.

        Raises:
            TypeError: if `value` is anything else, or `key` is no string.
            ValueError: if the row holds `key` already, or it is empty, "step", or a formula to a
                spreadsheet, as it begins with `=`, `+`, `-` or `@`.
        """
        _check_key(key)
        self._add({key: _number(key, value)})

    def log_array(self, key: str, array: ArrayLike) -> None:
        """Add `key/count`, and the mean, min, max, std and median of all elements likewise.

        An empty array adds its count of 0 alone. The statistics are worked out in float64; the
        standard deviation is that of the population.

        Raises:
            TypeError: if `array` does not hold real numbers, or `key` is no string.
            ValueError: if the row holds one of the keys already.
        """
        _check_key(key)
        values = _real_array(key, array)
        statistics: dict[str, Number] = {f"{key}/count": values.size}
        if values.size:
            with np.errstate(all="ignore"):  # inf - inf in the deviation of infinite values
                for name in ("mean", "min", "max", "std", "median"):
                    statistics[f"{key}/{name}"] = float(getattr(np, name)(values))
        self._add(statistics)

    def _add(self, values: dict[str, Number]) -> None:
        self._check_open()
        # All keys before any is added, so that an array's statistics are there together or not at all.
        for key in values:
            if key in self._row:
                raise ValueError(f"Logger: {key!r} was logged twice before write()")
        self._row.update(values)

    def write(self, step: int) -> dict[str, Number]:
        """Write the collected row to all writers, start a new one, and return what was written.

        step: environment steps so far, as a rule. An empty row is not written.

        Raises:
            TypeError: if `step` is no integer.
        """
        self._check_open()
        step = _integer(step)
        row, self._row = self._row, {}
        if row:
            self._to_all(lambda writer: writer.write(step, row))
        return row

    @property
    def shows_pictures(self) -> bool:
        """Whether a writer that works takes histograms and pictures."""
        return any(writer.shows_pictures for writer in self.writers)

    def histogram(self, step: int, key: str, array: ArrayLike) -> None:
        """Send the distribution of all finite elements to the writers that show it, such as TensorBoard's.

        Raises:
            TypeError: if `array` does not hold real numbers, `key` is no string, or `step` is no integer.
            ValueError: if `key` is empty, "step", or a formula to a spreadsheet.
        """
        self._check_open()
        _check_key(key)
        step, values = _integer(step), _real_array(key, array).ravel()
        finite = values[np.isfinite(values)]
        if finite.size:
            self._to_all(lambda writer: writer.add(lambda to: to.histogram(step, key, finite)))

    def picture(self, step: int, key: str, picture: bytes) -> None:
        """Send a picture, a PNG or GIF file, to the writers that show it.

        Raises:
            TypeError: if `key` is no string, or `step` is no integer.
            ValueError: if `picture` is neither, or for a key as in `histogram`.
        """
        self._check_open()
        _check_key(key)
        step = _integer(step)
        if picture[:4] not in (b"\x89PNG", b"GIF8"):
            raise ValueError(f"Logger: {key!r}: expected a PNG or GIF file, got {picture[:8]!r}")
        self._to_all(lambda writer: writer.add(lambda to: to.picture(step, key, picture)))

    def rewind(self, step: int) -> None:
        """Drop the row that was not written yet, and from all writers the rows of steps beyond `step`.

        Used when a run resumes from its checkpoint at `step`, as it will write the later rows
        again.

        Raises:
            TypeError: if `step` is no integer.
        """
        self._check_open()
        step = _integer(step)
        self._row = {}
        self._to_all(lambda writer: writer.rewind(step))

    def sync(self) -> None:
        """Flush all written rows to disk, as far as the writers can, so that they survive a power cut."""
        self._check_open()
        self._to_all(lambda writer: writer.sync())

    def notice(self, text: str) -> None:
        """Send a remark to log file and terminal."""
        self._message("notice", text)

    def warn(self, text: str) -> None:
        """Send a warning to log file and terminal; never raises a Python warning."""
        self._message("warning", text)

    def _message(self, level: Level, text: str) -> None:
        self._check_open()
        self._send(level, text)

    def _send(self, level: Level, text: str) -> None:
        self._to_all(lambda writer: writer.message(level, text))
        if not any(writer.shows_messages for writer in self._writers):
            with contextlib.suppress(OSError, ValueError):  # that stream may be closed too
                print(f"parllel: {level}: {text}", file=sys.stderr)

    def _to_all(self, action: Callable[[_GuardedWriter], _Remark | None]) -> None:
        remarks = [action(writer) for writer in self._writers]
        # Saying that one writer failed may be where another fails; that ends, as messages are for
        # those that work.
        for remark in remarks:
            if remark is not None:
                self._send(*remark)

    @contextlib.contextmanager
    def catch_warnings(self) -> Iterator[None]:
        """Send Python warnings to log file and terminal while the context lasts.

        Each text is sent once for a place in the code, and at most ten texts of one place.

        Python's filters apply as usual: an ignored warning is not logged, and "error" raises. Warnings of
        other processes are not seen here.
        """
        seen: dict[tuple[str, int, type[Warning]], set[str]] = {}
        before = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if file is not None or self._closed:
                before(message, category, filename, lineno, file, line)
                return
            texts = seen.setdefault((filename, lineno, category), set())
            text = f"{category.__name__}: {message} ({filename}:{lineno})"
            if text in texts or len(texts) == _TEXTS_OF_A_PLACE:
                return
            texts.add(text)  # first, as a writer may warn too
            is_last = len(texts) == _TEXTS_OF_A_PLACE
            self.warn(f"{text}; further warnings of this place are left out" if is_last else text)

        warnings.showwarning = show
        try:
            yield
        finally:
            warnings.showwarning = before

    def close(self) -> None:
        """Close all writers; a row that was not written is dropped. Idempotent."""
        self._closed = True
        while self._writers:
            writer = self._writers.pop(0).writer
            try:
                writer.close()
            except Exception as error:
                self._send("warning", f"{type(writer).__name__} failed to close: {error!r}")

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the Logger was used after close()")


class _GuardedWriter:
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

    def write(self, step: int, values: Mapping[str, Number]) -> _Remark | None:
        """Write a row, and return a remark if the writer has failed or works again."""
        return self._try(lambda: self.writer.write(step, values), rows=1)

    def add(self, action: Callable[[Writer], None]) -> _Remark | None:
        """Write something besides rows, unless the writer has failed."""
        return self._try(lambda: action(self.writer)) if self.works else None

    def message(self, level: Level, text: str) -> _Remark | None:
        """Write a message, unless the writer has failed."""
        # A short line may fit where a row does not, and would pass for a writer that works again.
        return self._try(lambda: self.writer.message(level, text)) if self.works else None

    def rewind(self, step: int) -> _Remark | None:
        """Rewind the writer, now or before the next row that it takes."""
        self._rewind_to = step if self._rewind_to is None else min(step, self._rewind_to)
        return self._try(lambda: None)

    def sync(self) -> _Remark | None:
        """Sync the writer, unless it fails."""
        return self._try(self.writer.sync) if self.works else None

    def _try(self, action: Callable[[], None], rows: int = 0) -> _Remark | None:
        try:
            if self._rewind_to is not None:
                self.writer.rewind(self._rewind_to)
                self._rewind_to = None
            action()
        except Exception as error:
            return self._failed(error, rows)
        return self._worked()

    def _failed(self, error: Exception, rows: int) -> _Remark | None:
        self._missing += rows
        if not self.works:
            return None
        self.works = False
        return "warning", f"{self._name} failed, and is tried again with each row: {error!r}"

    def _worked(self) -> _Remark | None:
        if self.works:
            return None
        self.works = True
        missing, self._missing = self._missing, 0
        return "notice", f"{self._name} works again; rows that it misses: {missing}"

    @property
    def _name(self) -> str:
        return type(self.writer).__name__


def _checked(writers: Any) -> list[Writer]:
    if isinstance(writers, Writer) or not isinstance(writers, Iterable):
        hint = "; give [writer]" if hasattr(writers, "write") else ""
        kind = type(writers).__name__
        raise TypeError(f"Logger: writers: expected a list of Writers, got a {kind}{hint}")
    checked = list(writers)
    for writer in checked:
        if isinstance(writer, type):
            raise TypeError(
                f"Logger: writers: expected Writers, got the class {writer.__name__}; call it"
            )
        # Not by its methods: with those that a Writer inherits, a resume and a power cut lose no rows.
        if not isinstance(writer, Writer):
            what, kind = repr(writer), type(writer).__name__
            if hasattr(writer, "write"):
                what = f"a {kind}, which does not inherit from parllel.logging.Writer"
            raise TypeError(f"Logger: writers: expected Writers, got {what}")
    return checked


def _check_key(key: str) -> None:
    check_key("Logger", key)
    if key == "step":
        raise ValueError("Logger: key: expected a name other than 'step', which each row has")


def _integer(step: Any) -> int:
    if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
        raise TypeError(f"Logger: step: expected an integer, got {step!r}")
    return int(step)


def _number(key: str, value: Any) -> Number:
    scalar = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if isinstance(scalar, (bool, np.bool_, int, np.integer)):
        return int(scalar)
    if isinstance(scalar, (float, np.floating)):
        return float(scalar)
    what = f"{type(value).__name__} {value!r}"
    raise TypeError(f"Logger: {key!r}: expected a number, got {what[:200]}")


def _real_array(key: str, array: ArrayLike) -> np.ndarray[Any, np.dtype[np.float64]]:
    try:
        values = np.asarray(array)
    except ValueError as error:  # lists of different lengths
        raise TypeError(f"Logger: {key!r}: expected an array of real numbers: {error}") from error
    if values.dtype.kind not in "biuf":
        raise TypeError(f"Logger: {key!r}: expected an array of real numbers, got {values.dtype}")
    # float16 overflows in the sum of a few numbers.
    return values.astype(np.float64)
