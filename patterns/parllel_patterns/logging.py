"""The usual set of writers."""

from __future__ import annotations

from contextlib import ExitStack, closing

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

    Raises:
        TypeError: if `folder` is no RunFolder, or one of `more` no Writer.
        OSError: if a file cannot be written.
    """
    if not isinstance(folder, RunFolder):
        raise TypeError(
            f"build_logger: folder: expected a RunFolder, got {folder!r}; CsvWriter and others take a path"
        )
    problem = None  # reported below, when there is a logger to report it to
    with ExitStack() as opened:
        # Each closed at once if a later one cannot be made.
        writers: list[Writer] = [
            opened.enter_context(closing(kind(folder.path)))
            for kind in (TextWriter, CsvWriter, JsonlWriter)
        ]
        try:
            # Not a requirement: a first script should run with what parllel itself installs.
            writers.append(opened.enter_context(closing(TensorBoardWriter(folder.path))))
        except ImportError as error:
            problem = str(error)
        if console is not None:
            writers.append(TerminalWriter(console))
        logger = Logger([*writers, *more])
        opened.pop_all()
    if problem is not None:
        logger.notice(f"no events for TensorBoard: {problem}")
    return logger
