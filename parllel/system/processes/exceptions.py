"""Transfer of an exception from a child to its parent.

    child    pack_exception ---- one message of some 144 KiB at most ----> raise_packed    parent

The child may fail while the parent is busy or has ended, so its message must fit into an empty pipe:
otherwise the child would block on a write that nobody reads. Hence the limits on all sizes.
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

MAX_BYTES = 2**16  # limit for the pickled exception, and for the text of its traceback
_SUMMARY_BYTES = 2**14
# Limits within a shortened exception: all arguments, each note, all attributes. Their sum is below MAX_BYTES,
# which leaves room for pickle's overhead.
_ARGUMENT_BYTES, _ATTRIBUTE_BYTES, _ATTRIBUTES_BYTES = 3 * 2**14, 2**11, 2**13


def pack_exception(error: BaseException) -> bytes:
    """Pack an exception and its traceback for `raise_packed`.

    Texts of more than 64 KiB lose their middle, and larger arguments are replaced by their `repr`. An
    exception that cannot be pickled is replaced by a WorkerError that names its type.
    """
    # As text, since traceback objects cannot be pickled; first, before the exception is changed.
    text = cut(_traceback(error), MAX_BYTES)
    summary = cut(_summary(error), _SUMMARY_BYTES)
    # The most faithful first; the last one always works.
    candidates: list[Callable[[], BaseException]] = [
        lambda: error,
        lambda: _shortened(error),
        lambda: WorkerError(summary),
    ]
    for candidate in candidates:
        with contextlib.suppress(Exception):
            carried = candidate()
            packed = cloudpickle.dumps((carried.with_traceback(None), _arguments(carried)))
            # Unpickled here as a test: an exception whose constructor takes other arguments than `args`
            # can be pickled, and fails only at the other end.
            if len(packed) <= MAX_BYTES and type(_rebuilt(packed)) is type(carried):
                # Pickled separately, so that the parent still gets the texts if it lacks the class.
                return pickle.dumps((packed, summary, text))
    raise AssertionError("a WorkerError can always be pickled")


def cut(text: str, max_bytes: int) -> str:
    """Shorten a text to at most `max_bytes` bytes of UTF-8, keeping beginning and end."""
    if len(text) <= max_bytes and len(_encoded(text)) <= max_bytes:
        return text
    half = max_bytes // 2 - 32  # leaves room for the line about omitted characters
    # Cut before encoding, as a message may have a hundred megabytes.
    head = _encoded(text[:half])[:half].decode("utf-8", "ignore")
    tail = _encoded(text[-half:])[-half:].decode("utf-8", "ignore")
    n_left_out = len(text) - len(head) - len(tail)
    return f"{head}\n... {n_left_out} characters are left out ...\n{tail}"


def _encoded(text: str) -> bytes:
    # Messages may contain lone surrogates from file names, which strict UTF-8 refuses.
    return text.encode("utf-8", "backslashreplace")


def _traceback(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception as problem:  # a chain of hundreds of exceptions exceeds the recursion limit
        return f"{_summary(error)}\n(no traceback: {type(problem).__name__})\n"
    if sys.version_info < (3, 11):  # later versions print the notes themselves
        text += "".join(f"{note}\n" for note in notes_of(error))
    return text


def _shortened(error: BaseException) -> BaseException:
    """Return a copy of the same class, with long arguments shortened and large attributes left out.

    Raises pickling errors: an attribute that cannot be pickled must not vanish silently.
    """
    reduced: Any = error.__reduce__()  # includes what `args` lacks, such as the file of an OSError
    most = _ARGUMENT_BYTES // max(len(reduced[1]), 1)
    args = [_shortened_value(arg, most) for arg in reduced[1]]
    # Without `__init__`, which may take other arguments, or format the message a second time.
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


def _shortened_value(value: Any, max_bytes: int) -> Any:
    if isinstance(value, str):
        return cut(value, max_bytes)
    if isinstance(value, bytes):
        return value[:max_bytes]
    if _size(value) <= max_bytes:
        return value
    # reprlib abbreviates containers without formatting all their elements.
    short = reprlib.Repr()
    short.maxother = 1000
    return cut(short.repr(value), max_bytes)


def _size(value: Any) -> int:
    return len(cloudpickle.dumps(value))


def _arguments(error: BaseException) -> tuple[Any, ...] | None:
    """Return the `args` to restore after unpickling; None if the class customises pickling."""
    cls = type(error)
    plain = cls.__reduce__ is BaseException.__reduce__ and cls.__reduce_ex__ is object.__reduce_ex__
    return error.args if plain else None


def _rebuilt(packed: bytes) -> BaseException:
    error: BaseException
    error, args = pickle.loads(packed)
    # Unpickling calls the constructor with the final message. A constructor that formats its arguments, as in
    # `super().__init__(f"failed with code {code}")`, would format it a second time.
    if args is not None:
        error.args = args
    return error


def _summary(error: BaseException) -> str:
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    try:
        return f"{name}: {error}"
    except Exception as problem:
        return f"{name}: (no text: {type(problem).__name__})"


def raise_packed(packed: bytes, where: str) -> Any:
    """Raise an exception packed by `pack_exception`, with the child's traceback as its cause.

    where: names the child and its task; part of the cause, and added as a note.
    """
    inner, summary, text = pickle.loads(packed)
    try:
        error = _rebuilt(inner)
    except Exception as problem:
        # The class is defined in a module that this process lacks.
        error = WorkerError(f"{summary} (which cannot be loaded here: {problem})")
    if not isinstance(error, Exception):
        # A child's SystemExit or KeyboardInterrupt must not end the parent.
        error = WorkerError(f"{where}: {type(error).__name__}: {error}")
    add_note(error, f"in {where}")
    raise error from WorkerTracebackError(f"{where}; traceback of the child:\n\n{text}")
