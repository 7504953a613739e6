"""Exceptions for calls in a wrong state, failed workers, and lack of memory.

A bad argument raises a plain ValueError or TypeError.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TypeVar

ErrorT = TypeVar("ErrorT", bound=BaseException)
# Limits of a message that lists several errors: how many it names, and characters of each.
_MAX_NAMED, _MAX_CHARACTERS = 8, 300


def install_command(extra: str) -> str:
    """Return the command that installs an extra, for error messages.

    It refers to a checkout: `parllel` on the package index is another project, and `parllel-rl`, this one,
    is not published yet.
    """
    return f"pip install '.[{extra}]' in a checkout of parllel"


class ParllelError(Exception):
    """Base class of all errors of this package."""


class UnusableDeviceError(ParllelError, ValueError):
    """A device that PyTorch cannot use on this machine, such as "cuda" without a GPU."""


class WrongStateError(ParllelError, RuntimeError):
    """A method was called in the wrong state, such as `await_step` before `step_async`."""


class ClosedError(WrongStateError):
    """The object was used after `close()`."""


class WorkerError(ParllelError, RuntimeError):
    """A child process failed; the message names it and its environments."""


class WorkerDiedError(WorkerError):
    """A child process exited, or was killed, without being asked to."""


class WorkerTimeoutError(WorkerError, TimeoutError):
    """A child process did not reply in time. Cages kill the process; a `Program` keeps running."""


class HalfLineError(WorkerDiedError):
    """A program ended, or closed its output, in the middle of a line; `half_line` holds the received part."""

    half_line: bytes = b""


class LineTooLongError(WorkerError):
    """A program wrote a line above the limit. The line is lost; later lines can be read."""


class BadReplyError(WorkerError):
    """A worker wrote a line that is not a valid reply. Later lines can be read."""


class RestartsUsedUpError(WorkerError):
    """A process died more often than its restart budget allows. The message gives the last reasons."""


class WorkerTracebackError(WorkerError):
    """The traceback of a child process as text, set as the cause of the exception re-raised in the parent."""


class RegistrationError(ParllelError):
    """A buffer cannot be sent to another process, or is not known there."""


class InsufficientMemoryError(ParllelError, MemoryError):
    """The requested memory is not available. Nothing was allocated."""


class EpisodeTooLongError(ParllelError):
    """An episode is longer than the batch of a sampler that requires whole episodes."""


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception (PEP 678).

    Python 3.10 stores the note but does not print it; `notes_of` returns it.
    """
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        with contextlib.suppress(AttributeError):  # an exception without a dict
            error.__notes__ = [*notes_of(error), note]  # type: ignore[attr-defined]


def first_of(errors: Sequence[ErrorT]) -> ErrorT:
    """Return the first of several simultaneous errors. Its message or a note names the others."""
    first, *others = errors
    named = [_described(other) for other in others[:_MAX_NAMED]]
    if len(others) > _MAX_NAMED:
        named.append(f"{len(others) - _MAX_NAMED} more")
    # Extend the message of a WorkerError. A user's exception keeps its message and gets a note.
    if named and isinstance(first, WorkerError):
        first.args = ("; also ".join([str(first), *named]),)
    elif named:
        add_note(first, "; ".join(f"also {name}" for name in named))
    return first


def _described(error: BaseException) -> str:
    said = str(error) if isinstance(error, WorkerError) else f"{type(error).__name__}: {error}"
    return ", ".join(
        [said[:_MAX_CHARACTERS], *(note[:_MAX_CHARACTERS] for note in notes_of(error))]
    )


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an exception, in the order in which they were added."""
    return list(getattr(error, "__notes__", []))
