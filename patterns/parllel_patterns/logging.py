"""The usual set of writers."""

from __future__ import annotations

from rich.console import Console

from parllel.logging import (
    CsvWriter,
    JsonlWriter,
    Logger,
    TensorBoardWriter,
    TerminalWriter,
    TextWriter,
    Writer,
)
from parllel.runs import RunFolder


def build_logger(folder: RunFolder, console: Console | None = None, *more: Writer) -> Logger:
    """Return a logger to files in the folder of a run, to a console if one is given, and to more writers.

    The files are log.txt, progress.csv, progress.jsonl and, if TensorBoard is installed,
    events.out.tfevents.*; if it is not, the log says so.
    """
    writers: list[Writer] = [
        TextWriter(folder.path),
        CsvWriter(folder.path),
        JsonlWriter(folder.path),
    ]
    problem = None  # reported below, when there is a logger to report it to
    try:
        # Not a requirement: a first script should run with what parllel itself installs.
        writers.append(TensorBoardWriter(folder.path))
    except ImportError as error:
        problem = str(error)
    if console is not None:
        writers.append(TerminalWriter(console))
    logger = Logger([*writers, *more])
    if problem is not None:
        logger.notice(f"no events for TensorBoard: {problem}")
    return logger
