"""The usual set of writers."""

from __future__ import annotations

from rich.console import Console

from parllel.logging import CsvWriter, Logger, TensorBoardWriter, TerminalWriter, TextWriter, Writer
from parllel.runners import RunFolder


def build_logger(folder: RunFolder, console: Console | None = None) -> Logger:
    """Return a logger to log.txt, progress.csv and TensorBoard, and to a console if one is given."""
    writers: list[Writer] = [
        TextWriter(folder.path),
        CsvWriter(folder.path),
        TensorBoardWriter(folder.path),
    ]
    if console is not None:
        writers.append(TerminalWriter(console))
    return Logger(writers)
