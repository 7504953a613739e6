"""Exceptions on their way from a child to its parent.

A child that fails may have nobody who reads: what it says fits into an empty pipe, so that it never waits.
"""

from __future__ import annotations

import contextlib
import pickle
import reprlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

import cloudpickle

from parllel.errors import WorkerError, WorkerTracebackError, add_note, notes_of

MOST_BYTES = 2**16  # of an exception, and of its traceback
_SUMMARY_BYTES = 2**14
# Of an exception that is too long: its arguments together, each of its attributes, all of these.
_ARGUMENT_BYTES, _ATTRIBUTE_BYTES, _ATTRIBUTES_BYTES = 3 * 2**14, 2**11, 2**13


def pack_exception(error: BaseException) -> bytes:
    """Return `error` and its traceback as bytes that `raise_packed` understands.

    Texts of more than 64 KiB lose their middle; larger arguments become their `repr`. An exception that
    does not survive pickling is replaced by a WorkerError that names its type.
    """
    text = cut(_traceback(error), MOST_BYTES)
    summary = cut(_summary(error), _SUMMARY_BYTES)
    candidates: list[Callable[[], BaseException]] = [
        lambda: error,
        lambda: _shortened(error),
        lambda: WorkerError(summary),
    ]
    for candidate in candidates:
        with contextlib.suppress(Exception):
            carried = candidate()
            packed = cloudpickle.dumps((carried.with_traceback(None), _arguments(carried)))
            # Some exceptions pickle but cannot be rebuilt, for want of constructor arguments.
            if len(packed) <= MOST_BYTES and type(_rebuilt(packed)) is type(carried):
                return pickle.dumps((packed, summary, text))
    raise AssertionError("a WorkerError can always be pickled")


def cut(text: str, most_bytes: int) -> str:
    """Return a text of at most so many bytes, which keeps its beginning and its end."""
    if len(text) <= most_bytes and len(_encoded(text)) <= most_bytes:
        return text
    half = most_bytes // 2 - 32  # leaves room for the note
    # By character first: a text may have a hundred megabytes.
    head = _encoded(text[:half])[:half].decode("utf-8", "ignore")
    tail = _encoded(text[-half:])[-half:].decode("utf-8", "ignore")
    n_left_out = len(text) - len(head) - len(tail)
    return f"{head}\n... {n_left_out} characters are left out ...\n{tail}"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _traceback(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception as problem:  # a chain of hundreds of exceptions takes too deep a recursion
        return f"{_summary(error)}\n(no traceback: {type(problem).__name__})\n"
    if sys.version_info < (3, 11):
        text += "".join(f"{note}\n" for note in notes_of(error))
    return text


def _shortened(error: BaseException) -> BaseException:
    """Return a copy with the same class, arguments that were too long cut, and small attributes.

    Raises what pickling raises: an attribute that cannot be pickled is not to be missed in silence.
    """
    reduced: Any = error.__reduce__()  # has what `args` lacks, such as the file of an OSError
    most = _ARGUMENT_BYTES // max(len(reduced[1]), 1)
    args = [_shortened_value(arg, most) for arg in reduced[1]]
    copy: BaseException = type(error).__new__(type(error), *args)
    if _arguments(error) is not None:
        copy.args = tuple(args)
    room = _ATTRIBUTES_BYTES
    for name, value in vars(error).items():
        if name == "__notes__":
            value = [_shortened_value(note, _ATTRIBUTE_BYTES) for note in value[:4]]
        size = _size(value)
        if size <= room:
            room -= size
            vars(copy)[name] = value
    return copy


def _shortened_value(value: Any, most_bytes: int) -> Any:
    if isinstance(value, str):
        return cut(value, most_bytes)
    if isinstance(value, bytes):
        return value[:most_bytes]
    if _size(value) <= most_bytes:
        return value
    short = reprlib.Repr()
    short.maxother = 1000
    return cut(short.repr(value), most_bytes)


def _size(value: Any) -> int:
    return len(cloudpickle.dumps(value))


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
