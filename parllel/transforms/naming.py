"""Name the transform in whose method an error was raised, which its message seldom does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from parllel.errors import add_note
from parllel.transforms.transform import Transform


@contextmanager
def naming(transform: Transform, where: str) -> Iterator[None]:
    """Add a note with the transform's name to errors raised in this context.

    where: the method, and what else tells the place.
    """
    try:
        yield
    except Exception as error:
        note_transform(error, transform, where)
        raise


def note_transform(error: Exception, transform: Transform, where: str) -> None:
    """Add the note of `naming`, where entering a context for each row would cost too much."""
    add_note(error, f"in {type(transform).__name__}.{where}")
