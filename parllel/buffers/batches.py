"""Buffers that hold several batches, and the number of the current one.

The arrays of such a buffer (a replay, or one with two sides) are rotated together before each batch. Readers
and writers are bound to the memory once; afterwards they only receive the number of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from parllel.arrays.array import Array
from parllel.arrays.block import Block
from parllel.errors import RegistrationError

V = TypeVar("V")


def batch_number(arrays: Iterable[Array]) -> int:
    """Return the number of the arrays' current batch, or 0 if each array holds a single batch.

    Raises:
        RegistrationError: if the arrays have different current batches.
    """
    return shown_number([array.block for array in moving(arrays)])


def shown_number(blocks: Sequence[Block]) -> int:
    """Return the number of the current batch of memory blocks, like `batch_number` for arrays."""
    number = blocks[0].window_number if blocks else 0
    for block in blocks:
        if block.window != number * block.window_rows:
            raise RegistrationError(
                "expected all arrays to be on the same batch, got batches "
                f"{sorted({block.window_number for block in blocks})}; rotate them together"
            )
    return number


def count_batches(arrays: Iterable[Array]) -> int:
    """Return the number of batches in the arrays, ignoring arrays of a single batch.

    Raises:
        ValueError: if the numbers differ, so that the arrays cannot be rotated together.
    """
    counts = {array.block.n_windows for array in moving(arrays)}
    if len(counts) > 1:
        raise ValueError(
            "samples: expected all arrays that hold several batches to hold the same number, got "
            f"{sorted(counts)}"
        )
    return counts.pop() if counts else 1


def moving(arrays: Iterable[Array]) -> list[Array]:
    """Return the arrays that hold several batches. Views are left out, because their position is fixed."""
    return [array for array in arrays if not array.is_view and array.block.n_windows > 1]


def follows_batches(part: object, bind: str = "bind") -> bool:
    """Return whether an object can switch batches with `use_batch` instead of being bound again.

    A subclass that overrides `bind` but not `use_batch` may keep views that its parent does not know about.
    These would silently remain on the previous batch.
    """
    for cls in type(part).__mro__:
        if "use_batch" in vars(cls):
            return True
        if bind in vars(cls):
            return False
    return False


def rebind(bind: Callable[..., object], *arguments: Any) -> Callable[[int], None]:
    """Return a `use_batch` function for a part that must be bound again for each batch."""

    def use_batch(number: int) -> None:
        bind(*arguments)

    return use_batch


class PerBatch(Generic[V]):
    """Cache of a value per batch of a buffer, created on first use.

    Args:
        make: function that creates the value for a batch number.
        most: size of the cache; values of further batches are created on each use.
    """

    __slots__ = ("_kept", "_make", "_most")

    def __init__(self, make: Callable[[int], V], most: int) -> None:
        self._make, self._most = make, most
        self._kept: dict[int, V] = {}

    def at(self, number: int) -> V:
        """Return the value of a batch."""
        found = self._kept.get(number)
        if found is None:
            found = self._make(number)
            # Never evict: batches are used in a cycle, so the oldest value is the next one needed.
            if len(self._kept) < self._most:
                self._kept[number] = found
        return found


def max_kept(most: int, of_one: int, n_batches: int) -> int:
    """Return how many batches to cache if each needs `of_one` views: all, or none if that exceeds `most`."""
    return n_batches if n_batches * of_one <= most else 0
