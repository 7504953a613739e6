"""Telemetry of operators as lines of JSON: a file of steps and a file of episodes.

    one writer (an experiment, or a worker in batch mode)                  readers
    step, episode: one write() per record  ------------------------->      read_telemetry: whole lines

Once `write` has returned, a record survives the writer's death. Half a line can only be the last of a file,
if the disk was full or the writer was killed within the call. Readers ignore it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from parllel.types import Closeable

STEPS, EPISODES = "steps", "episodes"
_BLOCK = 1 << 16  # bytes that are searched for the end of a line at a time
# Fields that may differ between two runs of a script; no others do.
TIMES = ("time", "latency_s", "decide_s")
_RUN_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


class Telemetry(Closeable):
    """Writer of `<run_id>_steps.jsonl` and `<run_id>_episodes.jsonl` in a folder.

    Each record starts with the run id and ends with `time`, in seconds since 1970. Not thread-safe: use one
    object per thread.

    Args:
        folder: folder for the files. It is created if missing.
        run_id: a name that is unique in the folder. It consists of letters, digits, dots, hyphens
            and underscores.
        goes_on: append to existing files of this run.

    Raises:
        ValueError: for an invalid run id.
        FileExistsError: if files of this run exist already.
        OSError: if the files cannot be created.

    Example:
        >>> with Telemetry("telemetry", "random-0") as telemetry:
        ...     telemetry.step({"episode": 0, "step": 1, "reward": 1.0})
    """

    def __init__(
        self, folder: str | os.PathLike[str], run_id: str, *, goes_on: bool = False
    ) -> None:
        if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
            raise ValueError(
                "run_id: expected 1 to 200 letters, digits, dots, hyphens and underscores, got "
                f"{run_id!r}"
            )
        self.run_id = run_id
        self._encoder = msgspec.json.Encoder(enc_hook=_plain)
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._files: dict[str, int] = {}
        try:
            for kind in (STEPS, EPISODES):
                self._files[kind] = _open(telemetry_path(folder, run_id, kind), goes_on)
        except BaseException:
            self.close()
            raise

    def step(self, record: Mapping[str, Any]) -> None:
        """Write the record of a step. Raises as `episode`."""
        self._write(STEPS, record)

    def episode(self, record: Mapping[str, Any]) -> bytes:
        """Write the record of an episode and return its line.

        record: fields of the record: JSON values, NumPy scalars and arrays. NaN and infinities
            become null.

        Raises:
            TypeError: for any other value.
            OSError: if the record cannot be written, for example because the disk is full, and
                after `close`.
        """
        return self._write(EPISODES, record)

    def _write(self, kind: str, record: Mapping[str, Any]) -> bytes:
        whole = {"run_id": self.run_id, **record}
        whole.setdefault("time", time.time())
        line = self._encoder.encode(whole) + b"\n"
        if kind not in self._files:
            raise OSError(f"telemetry of {self.run_id}: written to after close()")
        file = self._files[kind]
        written = os.write(file, line)
        # A nearly full disk accepts a part; the next call raises with the reason.
        while written < len(line):
            written += os.write(file, line[written:])
        return line

    def close(self) -> None:
        """Close the files. Idempotent."""
        while self._files:
            os.close(self._files.popitem()[1])


def telemetry_path(folder: str | os.PathLike[str], run_id: str, kind: str) -> Path:
    """Return the path of a run's records. `kind` is STEPS or EPISODES."""
    return Path(folder) / f"{run_id}_{kind}.jsonl"


def read_telemetry(
    path: str | os.PathLike[str], decode: Callable[[bytes], Any] = msgspec.json.decode
) -> Iterator[Any]:
    """Yield the records of a file in order. An incomplete line at its end is ignored.

    decode: function that converts a line to a record.

    Raises:
        ValueError: for a line that is not a record. Names the line.
        OSError: if the file cannot be read.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode(line)
            except msgspec.DecodeError as error:
                raise ValueError(f"{path}: line {number}: not a record: {error}") from None


def _open(path: Path, goes_on: bool) -> int:
    # O_APPEND: records that another process writes by mistake are not overwritten.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    if goes_on:
        file = os.open(path, flags, 0o666)
        try:
            _cut_half_a_line(file)
        except BaseException:
            os.close(file)
            raise
        return file
    try:
        return os.open(path, flags | os.O_EXCL, 0o666)
    except FileExistsError:
        raise FileExistsError(
            f"{path}: telemetry of this run already exists; move it away, or choose another run_id"
        ) from None


def _cut_half_a_line(file: int) -> None:
    # The next record would otherwise be joined to it.
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - _BLOCK)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    os.ftruncate(file, end)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"telemetry: expected JSON values, got {value!r:.100}")
