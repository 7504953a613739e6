"""What numpy, torch and Python's operators do with an Array."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from parllel.arrays import Array, LazyFramesArray, RotatingArray
from parllel.buffers import NamedArrayTuple
from parllel.errors import ClosedError

BINARY = [
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    divmod,
    operator.pow,
    operator.matmul,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
]
UNARY = [operator.neg, operator.pos, operator.invert, abs]
HINT = r"np\.asarray\(array\)"


def filled(dtype: Any = np.float32) -> RotatingArray:
    array = RotatingArray((4, 3), dtype)
    array[...] = np.arange(12).reshape(4, 3)
    return array


@pytest.mark.parametrize("other", [0, 1.0, True, np.float32(0), [0], (0,), np.zeros(3)], ids=repr)
def test_equality_with_numbers_is_refused(other: Any) -> None:
    array = filled()
    for compare in (operator.eq, operator.ne):
        with pytest.raises(TypeError, match=HINT):
            compare(array, other)
    with pytest.raises(TypeError, match=HINT):
        _ = 0.0 == array  # noqa: SIM300
    with pytest.raises(TypeError, match=HINT):
        _ = torch.zeros(4, 3) == array


def test_equality_with_what_is_no_number_is_false() -> None:
    array = filled()
    for other in (None, "reward", object(), NamedArrayTuple(reward=array)):
        assert (array == other) is False
        assert array != other
    assert array == array[...]
    assert array != filled()


@pytest.mark.parametrize("compute", BINARY, ids=lambda f: f.__name__)
def test_operators_are_refused(compute: Callable[[Any, Any], Any]) -> None:
    array = filled(np.int64)
    for other in (1, array, [1, 2, 3]):
        with pytest.raises(TypeError, match=HINT):
            compute(array, other)
    with pytest.raises(TypeError, match=HINT):
        compute(1, array)


@pytest.mark.parametrize("compute", UNARY, ids=lambda f: f.__name__)
def test_operators_of_one_are_refused(compute: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=HINT):
        compute(filled(np.int64))


def test_adding_in_place_is_refused_and_changes_nothing() -> None:
    array = filled()
    with pytest.raises(TypeError, match=HINT):
        array += 1  # type: ignore[assignment, operator]
    np.testing.assert_array_equal(array, np.arange(12).reshape(4, 3))


def test_a_numpy_array_computes_with_an_array() -> None:
    array, numbers = filled(), np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(numbers + array, numbers * 2)
    np.testing.assert_array_equal(numbers == array, np.ones((4, 3), bool))


def test_functions_of_numpy_take_an_array() -> None:
    array, numbers = filled(), np.arange(12, dtype=np.float32).reshape(4, 3)
    assert np.mean(array) == numbers.mean()
    np.testing.assert_array_equal(np.sum(array, axis=0), numbers.sum(axis=0))
    np.testing.assert_array_equal(np.max(array[1:3], axis=1), numbers[1:3].max(axis=1))
    np.testing.assert_array_equal(np.where(np.equal(array, 3), 1, 0), np.where(numbers == 3, 1, 0))
    np.testing.assert_array_equal(np.concatenate([array, array]), np.concatenate([numbers] * 2))
    np.testing.assert_array_equal(np.from_dlpack(array), numbers)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8, bool], ids=lambda d: d.__name__
)
def test_torch_takes_an_array(dtype: Any) -> None:
    array = filled(dtype)
    expected = torch.from_numpy(np.asarray(array))
    for make in (torch.as_tensor, torch.tensor, torch.asarray, torch.from_dlpack):
        for view in (array, array[1:3], array[:, 1], array[2]):
            tensor = make(view)
            assert tensor.dtype == expected.dtype
            np.testing.assert_array_equal(tensor.numpy(), np.asarray(view))
    np.testing.assert_array_equal(torch.as_tensor(array[[2, 0]]).numpy(), np.asarray(array)[[2, 0]])


def test_a_tensor_of_an_array_shares_its_memory_and_keeps_it_in_place() -> None:
    array = filled()
    tensor = torch.as_tensor(array[1])
    array[1] = 7
    assert tensor.tolist() == [7, 7, 7]
    assert array.block.handed_out
    del tensor
    assert not array.block.handed_out


def test_what_numpy_has_and_an_array_has_not_is_named() -> None:
    array = filled()
    for name in ("mean", "reshape", "T"):
        with pytest.raises(
            AttributeError, match=rf"'{name}'; np\.asarray\(array\)\.{name} is numpy's"
        ):
            getattr(array, name)
    with pytest.raises(AttributeError, match=r"RotatingArray has no attribute 'maen'$"):
        _ = array.maen  # type: ignore[attr-defined]
    assert float(array[1, 2]) == 5.0
    assert int(array[1, 2]) == 5


def test_torch_takes_stacks_of_frames() -> None:
    stacks = LazyFramesArray((2, 1, 2, 3), np.float32)
    stacks[0, 0] = np.ones((2, 3))
    assert torch.as_tensor(stacks).shape == (2, 1, 2, 3)
    np.testing.assert_array_equal(torch.as_tensor(stacks).numpy(), np.asarray(stacks))


def test_a_closed_array_as_a_value_says_that_it_is_closed() -> None:
    array, closed = filled(), filled()
    element = closed[0, 1]
    closed.close()
    with pytest.raises(ClosedError, match=r"used after close\(\)"):
        array[0, 1] = element
    for location in (0, slice(0, 4), [0, 1]):
        with pytest.raises(ClosedError, match=r"used after close\(\)"):
            array[location] = closed
    with pytest.raises(ClosedError, match=r"used after close\(\)"):
        torch.as_tensor(closed)
    array.close()
    with pytest.raises(ClosedError, match=r"used after close\(\)"):
        array[0:2] = 1


@pytest.mark.parametrize(
    "value",
    [
        [None, 1, 2],
        (1, None, 2),
        [[1, 2, None]],
        np.array([1, None, 2]),
        np.array(None),
        [1, 2, len],
    ],
    ids=repr,
)
def test_what_is_no_number_is_not_stored(value: Any) -> None:
    array = filled()
    node = NamedArrayTuple(reward=array)
    for location in (0, (0, slice(None)), [0], slice(0, 1)):
        with pytest.raises(TypeError, match="expected numbers"):
            array[location] = value
        with pytest.raises(TypeError, match="expected numbers"):
            node[location] = {"reward": value}
    np.testing.assert_array_equal(array[0], [0, 1, 2])


def test_lists_are_still_cast_number_by_number() -> None:
    array = RotatingArray((2, 2), np.int32)
    array[0] = [1, 2]
    array[1] = [np.float32(3.0), Array((1,), np.int32)[0]]
    np.testing.assert_array_equal(array, [[1, 2], [3, 0]])
    with pytest.raises(OverflowError, match="out of bounds"):
        array[0] = [2**40, 0]
