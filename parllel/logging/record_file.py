"""A file of records: whole lines of JSON, numbered without a repeat.

    RecordFile, one for each file            any number of read_records, of any process
    append: one write() per record   ---->   read up to the last line break

What a reader finds before a line break was written whole: the line break is the last byte of a record, and a
file that is appended to fills from front to back. After the last one there may be half a record, of a write
that goes on or of a writer that was killed in it. The next writer drops that half, whose number it may give
away again, as no reader has taken it for a record.

Unlike the files of a Logger this one stays open, as there may be a record for each step.
"""

from __future__ import annotations

import errno
import io
import json
import operator
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from parllel.logging.files import append_all, drop_half_line, last_line, prepare_file
from parllel.logging.json_line import json_line
from parllel.types import Closeable

_OWN_KEYS = ("kind", "seq", "version")
_BEGIN = b'{"kind": '  # of each record
_BLOCK_NBYTES = 1 << 16  # that are read at a time


class RecordFile(Closeable):
    """Appends records to a file, each as one line `{"kind": "step", "seq": 3, "version": 1, ...}`.

    `seq` counts from 1, and goes on where an existing file ends. A record is in the file when `append`
    returns, and stays there if this process is killed; `sync` makes it survive a power cut. Threads may share
    one RecordFile; processes need a file each.

    Args:
        path: path of the file, whose folder is created if it is missing.
        version: version of the records' format, for their readers; an int of at least 1.

    Raises:
        OSError: if the file cannot be written, or the disk is full.
        ValueError: if `version` is less than 1, or an existing file holds no records.

    Example:
        >>> with RecordFile("steps.jsonl") as records:
        ...     records.append("step", {"reward": 1.0})
        1
    """

    def __init__(self, path: str | os.PathLike[str], *, version: int = 1) -> None:
        if operator.index(version) < 1:
            raise ValueError(f"RecordFile: version: expected an int of at least 1, got {version}")
        self.version = version
        self.path = Path(path)
        prepare_file("RecordFile", self.path.parent, self.path.name)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._file = self.path.open("a+b", buffering=0)
        try:
            # First, as the next would cut off the end of a file that holds something else.
            self._seq = self._last_seq()
            # What is known of the file: its end, or None if half a record may be there.
            self._end: int | None = drop_half_line(self._file)
        except BaseException:
            self._file.close()
            raise

    def _last_seq(self) -> int:
        line = last_line(self._file)
        try:
            if line:
                return int(_parse_record(line)["seq"])
            self._file.seek(0)
            begin = self._file.read(len(_BEGIN))
            if not _BEGIN.startswith(begin):
                raise ValueError(f"expected a record, which begins with {_BEGIN!r}, got {begin!r}")
            return 0
        except ValueError as error:
            raise ValueError(
                f"RecordFile: {self.path}: last line: {error}; move the file away to start a new "
                "one"
            ) from None

    def append(self, kind: str, values: Mapping[str, Any]) -> int:
        """Append a record and return its number.

        After an OSError the file is as it was. The number is not given to another record, so a gap in the
        numbers says how many are missing.

        kind: kind of the record, by which readers can select.

        values: what JSON has, and scalars and arrays (up to 4,096 elements) of numpy, which are written as
            numbers and lists. Numbers that are not finite become "NaN", "Infinity" and "-Infinity".

        Raises:
            TypeError: if `kind` is no string, `values` no mapping, or for any other value; names its path.
            ValueError: if `values` has a `kind`, `seq` or `version`.
            OSError: if it cannot be written, as the disk is full or the file was removed.
            RuntimeError: after `close`, if another process has written to the file, or in a process that was
                forked from the writer.
        """
        if not isinstance(kind, str):
            raise TypeError(f"RecordFile: kind: expected a string, got {kind!r:.100}")
        if not isinstance(values, Mapping):
            raise TypeError(f"RecordFile: values: expected a mapping, got {values!r:.100}")
        for key in _OWN_KEYS:
            if key in values:
                raise ValueError(
                    f"RecordFile: {key!r}: expected a different name, because every record has a "
                    "field of this name"
                )
        # Before the lock, which another thread may have held when this process was forked.
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"RecordFile: {self.path}: opened by process {self._pid}, used by {os.getpid()}; "
                "give each process a separate file"
            )
        with self._lock:
            self._check()
            seq = self._seq + 1
            head = {"kind": kind, "seq": seq, "version": self.version}
            line = json_line("RecordFile", {**head, **values})
            # First, as Ctrl-C may come when the record has been written and its end has not been noted.
            self._seq = seq
            end, self._end = self._end_of_file(), None
            append_all(self._file, end, line)
            self._end = end + len(line)
        return seq

    def _check(self) -> None:
        if self._file.closed:
            raise RuntimeError(f"RecordFile: {self.path}: used after close()")

    def _end_of_file(self) -> int:
        """Return where the file ends, after a check that it is as the last record left it."""
        found = os.fstat(self._file.fileno())
        if found.st_nlink == 0:  # writing on would succeed, and leave nothing
            raise FileNotFoundError(
                errno.ENOENT,
                "RecordFile: the file was removed while it was open; create a new RecordFile to "
                "continue",
                str(self.path),
            )
        if self._end is None:
            return drop_half_line(self._file)
        if found.st_size != self._end:
            raise RuntimeError(
                f"RecordFile: {self.path}: expected {self._end:,} bytes, the size after the last "
                f"record, got {found.st_size:,}: another process has written to the file; give "
                "each process a separate file"
            )
        return self._end

    def sync(self) -> None:
        """Make what was appended survive a power cut.

        Raises:
            OSError: if it cannot be written to the disk.
            RuntimeError: after `close`.
        """
        with self._lock:
            self._check()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            self._file.close()


def read_records(
    path: str | os.PathLike[str],
    kind: str | None = None,
    *,
    after: int = 0,
    warn: Callable[[str], object] | None = None,
) -> Iterator[dict[str, Any]]:
    """Iterate over the records of a file, which may be growing: up to the last one that is whole.

    To follow a writer, ask again with the `seq` of the last record.

    Args:
        path: of a file that a `RecordFile` wrote.
        kind: of the records that are wanted; None: all.
        after: records up to this number are left out.
        warn: called with a message if the file ends with half a record, which is being written, or was when
            its writer was killed.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for a line that is no record, or whose number is not above that of the line before; names
            the file and the line.
    """
    last = 0
    with Path(path).open("rb", buffering=0) as file:
        for number, line in enumerate(_lines_of(file), 1):
            if not line.endswith(b"\n"):
                if warn is not None:
                    warn(f"{path}: line {number} is not whole: {len(line):,} bytes are left out")
                return
            try:
                record = _parse_record(line)
            except ValueError as error:
                raise ValueError(f"{path}: line {number}: {error}") from None
            seq = record["seq"]
            if seq <= last:
                raise ValueError(
                    f"{path}: line {number}: expected a seq above {last}, the seq of the line "
                    f"before, got {seq}; two processes must not write to a file at the same time"
                )
            last = seq
            if seq > after and kind in (None, record["kind"]):
                yield record


def _lines_of(file: io.FileIO) -> Iterator[bytes]:
    """Iterate over lines with their line breaks; what follows the last one comes last."""
    n_bytes = _BLOCK_NBYTES
    while block := file.read(n_bytes):
        end = block.rfind(b"\n") + 1
        for line in block[:end].split(b"\n")[:-1]:
            yield line + b"\n"
        if end < len(block) < n_bytes:
            yield block[end:]
            return
        # Each line is taken from one read: what is half there may be dropped by the next writer, and the rest
        # would be that of another record.
        file.seek(end - len(block), os.SEEK_CUR)
        n_bytes = n_bytes if end else 2 * n_bytes


def _parse_record(line: bytes) -> dict[str, Any]:
    """Return the record that a line holds.

    Raises:
        ValueError: if it holds none.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if (
        not isinstance(record, dict)
        or not isinstance(record.get("kind"), str)
        or not isinstance(record.get("seq"), int)
        or "version" not in record
    ):
        raise ValueError(
            f"expected a record, an object with kind, seq and version, got {line[:100]!r}"
        )
    return record
