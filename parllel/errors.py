"""The exceptions that parllel raises for a wrong moment, a dead worker or lost memory.

A bad argument is a plain ValueError or TypeError; these are for everything else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TypeVar

ErrorT = TypeVar("ErrorT", bound=BaseException)
_MOST_NAMED, _MOST_SAID = 8, 300  # of errors that came together: errors, and characters of each


class ParllelError(Exception):
    """Base class of all errors of this package."""


class WrongStateError(ParllelError, RuntimeError):
    """A call came at the wrong moment, such as `await_step` before `step_async`."""


class ClosedError(WrongStateError):
    """The object was used after `close()`."""


class WorkerError(ParllelError, RuntimeError):
    """Something happened to a child process; the message names it and its environments."""


class WorkerDiedError(WorkerError):
    """A child process exited, or was killed, without being asked to."""


class WorkerTimeoutError(WorkerError, TimeoutError):
    """A child process did not answer in time; it has been ended."""


class WorkerTracebackError(WorkerError):
    """Carries the traceback of a child as text; it is the cause of the re-raised exception."""


class RegistrationError(ParllelError):
    """A buffer could not be handed to, or was not known by, the other process."""


class InsufficientMemoryError(ParllelError, MemoryError):
    """Memory was asked for that the machine does not have; nothing was allocated."""


class EpisodeTooLongError(ParllelError):
    """An episode did not fit into the batch of a sampler that needs whole episodes."""


def add_note(error: BaseException, note: str) -> None:
    """Say where an exception comes from, without changing it (PEP 678).

    Python 3.10 keeps the note but does not show it; `notes_of` gives it back.
    """
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        with contextlib.suppress(AttributeError):  # an exception without a dict
            error.__notes__ = [*notes_of(error), note]  # type: ignore[attr-defined]


def first_of(errors: Sequence[ErrorT]) -> ErrorT:
    """Return the first of the errors that came at the same time, which names some of the others."""
    first, *others = errors
    named = [_in_words(other) for other in others[:_MOST_NAMED]]
    if len(others) > _MOST_NAMED:
        named.append(f"{len(others) - _MOST_NAMED} more")
    if named and isinstance(first, WorkerError):
        first.args = ("; also ".join([str(first), *named]),)
    elif named:
        add_note(first, "; ".join(f"also {name}" for name in named))
    return first


def _in_words(error: BaseException) -> str:
    said = str(error) if isinstance(error, WorkerError) else f"{type(error).__name__}: {error}"
    return ", ".join([said[:_MOST_SAID], *(note[:_MOST_SAID] for note in notes_of(error))])


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an exception, in the order in which they were added."""
    return list(getattr(error, "__notes__", []))
