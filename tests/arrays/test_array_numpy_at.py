from __future__ import annotations

import numpy as np
import pytest

from parllel.arrays import Array, RotatingArray
from parllel.errors import ClosedError
from parllel.testing.array_contract import LOCATIONS

# Rows and columns by themselves, as handlers take them.
SLICES_OF_ROWS = ((1, slice(0, 2)), (1, slice(None, None, -1)), (slice(1, 3), 0), (2, [0, 2]))


def filled(array):
    block = array.block
    block.memory[:] = np.arange(block.memory.size).reshape(block.memory.shape)
    return array


@pytest.mark.parametrize("location", [*LOCATIONS, *SLICES_OF_ROWS], ids=repr)
def test_numpy_at_is_what_indexing_gives(location):
    array = filled(RotatingArray((4, 3, 5), np.float32, padding=2))
    expected = np.arange(8 * 15).reshape(8, 3, 5)[2:6][location]
    np.testing.assert_array_equal(array.numpy_at(location), expected)
    np.testing.assert_array_equal(array[0:4].numpy_at(location), expected)


@pytest.mark.parametrize("row", [-1, 4])
def test_numpy_at_reaches_into_padding(row):
    array = filled(RotatingArray((4, 3), np.float32, padding=1))
    np.testing.assert_array_equal(array.numpy_at((row, 1)), (row + 1) * 3 + 1)


def test_numpy_at_follows_the_window_of_a_replay():
    array = filled(Array((2, 3), np.int32, full_size=4))
    array.rotate()
    assert array.numpy_at((0, 1)) == 2 * 3 + 1


@pytest.mark.parametrize("location", [(1, 2), (1, slice(0, 2)), (slice(0, 2), 1)], ids=repr)
def test_writing_into_numpy_at_lands_in_the_array(location):
    array = Array((4, 3), np.float32)
    view = array.numpy_at(location)
    assert isinstance(view, np.ndarray)
    assert array.block.handed_out
    view[...] = 7
    expected = np.zeros((4, 3))
    expected[location] = 7
    np.testing.assert_array_equal(array, expected)
    del view
    assert not array.block.handed_out


@pytest.mark.parametrize("location", [(-1, 0), (4, 0), (0, 3), (0, -4), (0, 0, 0)], ids=repr)
def test_numpy_at_refuses_what_is_not_there(location):
    array = Array((4, 3), np.float32)
    with pytest.raises(IndexError, match=r"row -?\d lies|out of bounds|too many indices"):
        array.numpy_at(location)


@pytest.mark.parametrize("location", [(0, 0), 0])
def test_numpy_at_of_a_closed_array(location):
    array = Array((4, 3), np.float32)
    array.close()
    with pytest.raises(ClosedError, match=r"after close\(\)"):
        array.numpy_at(location)
