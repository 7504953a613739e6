"""Buffers of several batches: which of them is current is a number.

The arrays of such a buffer, a replay or one with two sides, are rotated together before each batch. What
reads and writes them is bound to the memory once, and from then on given the number of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from parllel.arrays.array import Array
from parllel.arrays.block import Block
from parllel.errors import RegistrationError

V = TypeVar("V")


def batch_number(arrays: Iterable[Array]) -> int:
    """Return the number of the batch that arrays show, 0 if each holds one only.

    Raises:
        RegistrationError: if they show different ones.
    """
    return shown_number([array.block for array in moving(arrays)])


def shown_number(blocks: Sequence[Block]) -> int:
    """Return the same as `batch_number` for the memory of arrays that hold several batches."""
    number = blocks[0].window_number if blocks else 0
    for block in blocks:
        if block.window != number * block.window_rows:
            raise RegistrationError(
                "expected arrays that are all on the same side, or batch of a replay, got numbers "
                f"{sorted({block.window_number for block in blocks})}; rotate them together"
            )
    return number


def count_batches(arrays: Iterable[Array]) -> int:
    """Return how many batches arrays hold; arrays that hold only one do not count.

    Raises:
        ValueError: if they hold different numbers, so that they cannot be rotated together.
    """
    counts = {array.block.n_windows for array in moving(arrays)}
    if len(counts) > 1:
        raise ValueError(
            f"samples: expected arrays that hold one batch, or all the same number, got {sorted(counts)}"
        )
    return counts.pop() if counts else 1


def moving(arrays: Iterable[Array]) -> list[Array]:
    """Return the arrays that hold several batches; views of them stay where they are."""
    return [array for array in arrays if not array.is_view and array.block.n_windows > 1]


def follows_batches(part: object, bind: str = "bind") -> bool:
    """Return whether an object switches to another batch by `use_batch`, instead of being bound again.

    Whatever its method `bind` looks up belongs to one batch. A subclass that overrides it but not `use_batch`
    keeps more than its parent knows of, which would silently remain that of the batch before.
    """
    for cls in type(part).__mro__:
        if "use_batch" in vars(cls):
            return True
        if bind in vars(cls):
            return False
    return False


def rebind(bind: Callable[..., object], *arguments: Any) -> Callable[[int], None]:
    """Return what stands for `use_batch` of a part that is bound again for each batch."""

    def use_batch(number: int) -> None:
        bind(*arguments)

    return use_batch


class PerBatch(Generic[V]):
    """What is looked up for each batch of a buffer: made when it is first asked for, and kept.

    Args:
        make: makes it for the batch of a number.
        most: how many are kept; those of further batches are made each time.
    """

    __slots__ = ("_kept", "_make", "_most")

    def __init__(self, make: Callable[[int], V], most: int) -> None:
        self._make, self._most = make, most
        self._kept: dict[int, V] = {}

    def at(self, number: int) -> V:
        """Return what belongs to a batch."""
        found = self._kept.get(number)
        if found is None:
            found = self._make(number)
            # None is dropped for another: batches come round in order, so the oldest is needed next.
            if len(self._kept) < self._most:
                self._kept[number] = found
        return found


def max_kept(most: int, of_one: int, n_batches: int) -> int:
    """Return how many batches to keep `of_one` views of: all, or none if that is more than `most`."""
    return n_batches if n_batches * of_one <= most else 0
