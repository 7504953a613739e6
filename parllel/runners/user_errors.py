"""Distinguish errors of the user, such as a missing folder, from errors of training, and format them."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from parllel.errors import WorkerTracebackError

# An attribute of exceptions: whether they were raised within training.
_MARK = "_parllel_within_training"


@contextmanager
def mark_errors(*, within_training: bool) -> Iterator[None]:
    """Context manager that marks exceptions for `within_training`. An existing, inner mark is kept."""
    try:
        yield
    except BaseException as error:
        # On the exception itself, which may pass through several of these contexts, and other code in
        # between.
        if not hasattr(error, _MARK):
            setattr(error, _MARK, within_training)
        raise


def within_training(error: BaseException) -> bool:
    """Return whether an error was raised in a runner's loop, in which case its traceback is useful.

    Files that a run writes before its first batch do not count: a full disk, for example, is a
        user's error.
    """
    return bool(getattr(error, _MARK, False))


def is_own_error(error: BaseException) -> bool:
    """Return whether an error was raised by this package itself, not by an environment in a worker."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    # The last frame of a worker's error is ours in any case, as it is raised again in this process.
    if not frames or isinstance(error.__cause__, WorkerTracebackError):
        return False
    package = str(frames[-1].f_globals.get("__name__", "")).partition(".")[0]
    return package in ("parllel", "parllel_patterns")


def one_sentence(error: BaseException, more: str = "", not_users: str = "") -> str:
    """Format an error as one line, with the line of the user's code that led to it.

    Args:
        more: text to append to that line.
        not_users: a further folder, besides this package, whose code does not count as the user's.
    """
    ours = [str(Path(__file__).parents[1]), *sysconfig.get_paths().values()]
    said = " ".join(str(error).split())
    place = _place_of(error, [*ours, not_users] if not_users else ours)
    if not place:
        return said
    return f"{said} ({place}; {more})" if more else f"{said} ({place})"


def _place_of(error: BaseException, ours: Sequence[str]) -> str:
    place = ""
    found: BaseException | None = error
    while found is not None and not place:
        # The last one found counts: the innermost line of the user's code.
        for frame, line in traceback.walk_tb(found.__traceback__):
            file = frame.f_code.co_filename
            # What was compiled from a string, or frozen, has a name but no file.
            if Path(file).is_file() and not any(Path(file).is_relative_to(path) for path in ours):
                place = f"{file}:{line}"
        # An error that was turned into another has lost its way through the user's code; its cause has not.
        found = found.__cause__
    return place
