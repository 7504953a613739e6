"""Reading what a RecordFile wrote."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_BLOCK_NBYTES = 1 << 16  # that are read at a time


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
                record = parse_record(line)
            except ValueError as error:
                raise ValueError(f"{path}: line {number}: {error}") from None
            seq = record["seq"]
            if seq <= last:
                raise ValueError(
                    f"{path}: line {number}: expected a seq above {last}, that of the line before, got "
                    f"{seq}; two writers at a time damage a file"
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


def parse_record(line: bytes) -> dict[str, Any]:
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
