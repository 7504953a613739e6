"""Rows as TensorBoard events, without torch or TensorFlow."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parllel.logging.files import append, prepare_file
from parllel.logging.writer import FileWriter, Level, Number

_BINS = 64  # of a histogram; TensorBoard draws 30


class TensorBoardWriter(FileWriter):
    """Append rows, histograms and pictures to an event file of its own, by TensorBoard's own record writer.

    Records are written by the calling thread, so that an error reaches the Logger and no thread is
    alive when worker processes are forked. The file is there from the first row on.

    Args:
        folder: created if it is missing; what `tensorboard --logdir` is given.

    Raises:
        ImportError: if TensorBoard is not installed.
        OSError: if the folder cannot be written.
    """

    shows_pictures: ClassVar[bool] = True

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer import record_writer
        except ImportError as error:
            raise ImportError(
                "TensorBoardWriter needs TensorBoard: pip install '.[tensorboard]' in a checkout of parllel"
            ) from error
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._histogram = summary_pb2.HistogramProto
        self._start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._record_writer = record_writer.RecordWriter
        # The format of TensorBoard's names, which it reads in alphabetical order; nanoseconds tell
        # writers of one process apart.
        seconds, rest = divmod(time.time_ns(), 10**9)
        name = f"events.out.tfevents.{seconds:010d}.{socket.gethostname()}.{os.getpid()}.{rest:09d}"
        self.path = prepare_file("TensorBoardWriter", folder, name)
        # To open a run only to look at it should leave no empty file in its folder.
        self.path.unlink()

    def write(self, step: int, values: Mapping[str, Number]) -> None:
        """Append one event that holds all values; they are stored as float32."""
        scalars = [
            self._summary.Value(tag=key, simple_value=float(value)) for key, value in values.items()
        ]
        self._append(self._record(step=step, summary=self._summary(value=scalars)))

    def histogram(self, step: int, key: str, values: NDArray[np.float64]) -> None:
        """Append an event with the numbers in 64 bins."""
        counts, edges = np.histogram(values, bins=_BINS)
        histogram = self._histogram(
            min=values.min(),
            max=values.max(),
            num=values.size,
            sum=values.sum(),
            sum_squares=values @ values,
            bucket_limit=edges[1:],
            bucket=counts,
        )
        self._append_summary(step, self._summary.Value(tag=key, histo=histogram))

    def picture(self, step: int, key: str, picture: bytes) -> None:
        """Append an event with the file as it is; TensorBoard plays a GIF."""
        image = self._summary.Image(encoded_image_string=picture)
        self._append_summary(step, self._summary.Value(tag=key, image=image))

    def _append_summary(self, step: int, value: Any) -> None:
        self._append(self._record(step=step, summary=self._summary(value=[value])))

    def rewind(self, step: int) -> None:
        """Append what TensorBoard takes for a restart: it forgets rows of steps beyond `step`."""
        # It forgets from the step of the restart on. The first start that it ever sees forgets
        # nothing; where there was one before, the second of these has nothing left to do.
        restart = self._record(step=step + 1, session_log=self._start)
        self._append(restart + restart)

    def _append(self, records: bytes) -> None:
        append(self.path, records, header=self._record(file_version="brain.Event:2"))

    def _record(self, **content: Any) -> bytes:
        buffer = io.BytesIO()
        event = self._event(wall_time=time.time(), **content)
        self._record_writer(buffer).write(event.SerializeToString())
        return buffer.getvalue()

    def message(self, level: Level, text: str) -> None:
        """Do nothing: messages belong in the log file."""
