"""Three classes under the whole contract, one for each storage; the others where they differ from these.

Indexing depends on neither storage nor layout; where the memory is, how long it lasts and what follows a
batch do.
"""

from __future__ import annotations

from typing import Any

import pytest
from numpy.typing import DTypeLike

from parllel.arrays import (
    Array,
    ManagedMemoryArray,
    RotatingArray,
    RotatingManagedMemoryArray,
    RotatingSharedMemoryArray,
    SharedMemoryArray,
)
from parllel.arrays.switching import (
    SwitchingArray,
    SwitchingManagedMemoryArray,
    SwitchingRotatingArray,
    SwitchingRotatingManagedMemoryArray,
    SwitchingRotatingSharedMemoryArray,
    SwitchingSharedMemoryArray,
)
from parllel.testing.array_contract import ArrayContract, RotatingArrayContract

OTHER_ROTATING = [
    RotatingArray,
    RotatingManagedMemoryArray,
    SwitchingRotatingArray,
    SwitchingRotatingSharedMemoryArray,
]
OTHERS = [
    SharedMemoryArray,
    ManagedMemoryArray,
    SwitchingArray,
    SwitchingSharedMemoryArray,
    SwitchingManagedMemoryArray,
    *OTHER_ROTATING,
]


class Makes:
    """Fulfils the hook of the contracts with a class that takes the arguments of Array."""

    array_class: type[Array]

    def make(self, shape: tuple[int, ...], dtype: DTypeLike, padding: int, full_size: int) -> Array:
        if issubclass(self.array_class, SwitchingArray):  # at least two sides
            full_size = max(full_size, 2 * shape[0])
        return self.array_class(shape, dtype, padding=padding, full_size=full_size)


class TestArray(Makes, ArrayContract):
    array_class = Array


class TestRotatingSharedMemoryArray(Makes, RotatingArrayContract):
    array_class = RotatingSharedMemoryArray


class TestSwitchingRotatingManagedMemoryArray(Makes, RotatingArrayContract):
    array_class = SwitchingRotatingManagedMemoryArray


class TestOthers(Makes):
    @pytest.fixture(params=OTHERS, autouse=True)
    def choose(self, request: Any) -> None:
        self.array_class = request.param

    filled = ArrayContract.filled
    shape = ArrayContract.shape
    test_new = ArrayContract.test_a_new_array_is_zero_and_says_what_it_is
    test_view = ArrayContract.test_numpy_view_is_not_a_copy
    test_windows = ArrayContract.test_windows_follow_each_other_and_come_round
    test_close = ArrayContract.test_close_ends_use_and_keeps_what_was_handed_out


class TestOtherRotating(Makes):
    @pytest.fixture(params=OTHER_ROTATING, autouse=True)
    def choose(self, request: Any) -> None:
        self.array_class = request.param

    filled = ArrayContract.filled
    shape = ArrayContract.shape
    test_padding = RotatingArrayContract.test_padding_is_reached_by_row_number_alone
    test_next_batch = RotatingArrayContract.test_what_followed_a_batch_starts_the_next


def test_contract_says_which_hook_is_missing() -> None:
    class Forgetful(ArrayContract):
        pass

    with pytest.raises(
        NotImplementedError, match=r"Forgetful must define make\(\) to create an array"
    ):
        Forgetful().make((1,), "f4", 0, 1)


def test_contract_finds_a_wrong_class() -> None:
    class CountsFromTheEnd(Array):
        __slots__ = ()

        def __getitem__(self, location):  # type: ignore[no-untyped-def]
            return super().__getitem__(3 if location == -1 else location)

    class Wrong(Makes, ArrayContract):
        array_class = CountsFromTheEnd

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        Wrong().test_rows_are_not_counted_from_the_end()
