from __future__ import annotations

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
from parllel.testing.array_contract import ArrayContract, RotatingArrayContract


class Makes:
    """Fulfils the hook of the contracts with a class that takes the arguments of Array."""

    array_class: type[Array]

    def make(self, shape: tuple[int, ...], dtype: DTypeLike, padding: int, full_size: int) -> Array:
        return self.array_class(shape, dtype, padding=padding, full_size=full_size)


class TestArray(Makes, ArrayContract):
    array_class = Array


class TestSharedMemoryArray(Makes, ArrayContract):
    array_class = SharedMemoryArray


class TestManagedMemoryArray(Makes, ArrayContract):
    array_class = ManagedMemoryArray


class TestRotatingArray(Makes, RotatingArrayContract):
    array_class = RotatingArray


class TestRotatingSharedMemoryArray(Makes, RotatingArrayContract):
    array_class = RotatingSharedMemoryArray


class TestRotatingManagedMemoryArray(Makes, RotatingArrayContract):
    array_class = RotatingManagedMemoryArray


def test_contract_says_which_hook_is_missing() -> None:
    class Forgetful(ArrayContract):
        pass

    with pytest.raises(NotImplementedError, match="Forgetful must say how to make an array"):
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
