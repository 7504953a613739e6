"""The standard set of log writers."""

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
    """Return a logger that writes to files in a run's folder, to a console if given, and to more writers.

    The files are log.txt, progress.csv, progress.jsonl and, if TensorBoard is installed,
    events.out.tfevents.*. Without TensorBoard, the log mentions it.

    Raises:
        TypeError: if `folder` is not a RunFolder, or one of `more` not a Writer.
        OSError: if a file cannot be written.
    """
    if not isinstance(folder, RunFolder):
        raise TypeError(
            f"build_logger: folder: expected a RunFolder, got {folder!r}; CsvWriter and other "
            "writers take a path"
        )
    problem = None  # logged below, once there is a logger
    with ExitStack() as opened:
        # On an error, the writers created before are closed.
        writers: list[Writer] = [
            opened.enter_context(closing(kind(folder.path)))
            for kind in (TextWriter, CsvWriter, JsonlWriter)
        ]
        try:
            # Optional: a first script should run with parllel's own dependencies.
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
