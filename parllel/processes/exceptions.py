"""Exceptions on their way from a child to its parent."""

from __future__ import annotations

import contextlib
import pickle
import sys
import traceback
from typing import Any

import cloudpickle

from parllel.errors import WorkerError, WorkerTracebackError, add_note, notes_of


def pack_exception(error: BaseException) -> bytes:
    """Return `error` and its traceback as bytes that `raise_packed` understands.

    An exception that does not survive pickling is replaced by a WorkerError that names its type.
    """
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if sys.version_info < (3, 11):
        text += "".join(f"{note}\n" for note in notes_of(error))
    summary = _summary(error)
    stand_in = WorkerError(summary)
    for candidate in (error, stand_in):
        with contextlib.suppress(Exception):
            packed = cloudpickle.dumps((candidate.with_traceback(None), _arguments(candidate)))
            # Some exceptions pickle but cannot be rebuilt, for want of constructor arguments.
            if type(_rebuilt(packed)) is type(candidate):
                return pickle.dumps((packed, summary, text))
    raise AssertionError("a WorkerError can always be pickled")


def _arguments(error: BaseException) -> tuple[Any, ...] | None:
    """Return what the constructor is called with when it is rebuilt; None if the class has its own way."""
    cls = type(error)
    plain = cls.__reduce__ is BaseException.__reduce__ and cls.__reduce_ex__ is object.__reduce_ex__
    return error.args if plain else None


def _rebuilt(packed: bytes) -> BaseException:
    error: BaseException
    error, args = pickle.loads(packed)
    if args is not None:  # a constructor that words the text puts it around the text once more
        error.args = args
    return error


def _summary(error: BaseException) -> str:
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    try:
        return f"{name}: {error}"
    except Exception as problem:
        return f"{name}: (no text: {type(problem).__name__})"


def raise_packed(packed: bytes, where: str) -> Any:
    """Raise what `pack_exception` packed, as itself, with the child's traceback as its cause.

    where: names the child and what it was doing; becomes part of the cause and a note.
    """
    inner, summary, text = pickle.loads(packed)
    try:
        error = _rebuilt(inner)
    except Exception as problem:  # its class exists only in the child
        error = WorkerError(f"{summary} (which cannot be loaded here: {problem})")
    if not isinstance(error, Exception):
        # SystemExit or KeyboardInterrupt of a child must not end the parent.
        error = WorkerError(f"{where}: {type(error).__name__}: {error}")
    add_note(error, f"in {where}")
    raise error from WorkerTracebackError(f"{where}; traceback of the child:\n\n{text}")
