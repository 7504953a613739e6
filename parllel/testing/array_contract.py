"""Contract of Array classes: inherit it and define `make`, and pytest collects the tests.

    class TestMyArray(RotatingArrayContract):
        def make(self, shape, dtype, padding, full_size):
            return MyArray(shape, dtype, padding=padding, full_size=full_size)

`ArrayContract` tests only arrays without padding; `RotatingArrayContract` tests both kinds.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray

from parllel.arrays.array import Array
from parllel.errors import ClosedError

# The index types of samplers, transforms and minibatches, with the corner cases of numpy's rules.
LOCATIONS: tuple[Any, ...] = (
    ...,
    (),
    0,
    # Computed row numbers are numpy integers.
    np.int64(3),
    slice(1, 3),
    slice(None, None, -1),
    slice(3, None, -2),
    # Truncated at the end, like a list.
    slice(2, 99),
    (1, 2),
    (0, -1, -2),
    (..., 0),
    (slice(None), slice(None, None, -2)),
    # A repeated row, as in a minibatch drawn with replacement.
    [2, 0, 2],
    np.array([[0, 1], [3, 3]]),
    (slice(None), [2, 0]),
    ([0, 3], [1, 2]),
    # With a slice between two lists, numpy moves their common dimension to the front.
    ([0, 3], slice(1, None), [1, 0]),
    np.array([True, False, False, True]),
    (slice(None), np.array([False, True, True])),
    np.eye(4, 3, dtype=bool),
    # An empty minibatch keeps the other dimensions.
    [],
)


class ArrayContract:
    """Tests of an Array class without padding; the shape used is [4, 3, 2]."""

    shape = (4, 3, 2)

    def make(self, shape: tuple[int, ...], dtype: DTypeLike, padding: int, full_size: int) -> Array:
        """Return a fresh array of the class under test."""
        raise NotImplementedError(f"{type(self).__name__} must define make() to create an array")

    def filled(self, padding: int = 0, windows: int = 1) -> tuple[Array, NDArray[np.int64]]:
        """Return an array and the body written into it row by row."""
        array = self.make(self.shape, np.int64, padding, windows * self.shape[0])
        # From 1, because a zero could be memory that was never written.
        body = 1 + np.arange(int(np.prod(self.shape)), dtype=np.int64).reshape(self.shape)
        for t, row in enumerate(body):
            array[t] = row
        return array, body

    def test_a_new_array_is_zero_and_says_what_it_is(self) -> None:
        array = self.make(self.shape, np.float32, 0, 8)
        assert array.shape == self.shape
        assert array.dtype == np.float32
        assert (array.ndim, len(array), array.size, array.nbytes) == (3, 4, 24, 96)
        assert (array.first, array.last, array.padding, array.full_size) == (0, 3, 0, 8)
        assert not np.asarray(array).any()
        array.close()

    @pytest.mark.parametrize("location", LOCATIONS, ids=repr)
    def test_index_selects_what_numpy_selects(self, location: Any) -> None:
        array, body = self.filled()
        view = array[location]
        assert view.shape == body[location].shape
        np.testing.assert_array_equal(np.asarray(view), body[location])
        array.close()

    @pytest.mark.parametrize("location", LOCATIONS, ids=repr)
    def test_write_lands_where_numpy_writes(self, location: Any) -> None:
        # Both ways, as numpy's view of a list is a copy, in which the second one would be lost.
        for through_view in (False, True):
            array, body = self.filled()
            value = -np.arange(body[location].size).reshape(body[location].shape)
            body[location] = value
            if through_view:
                array[location][...] = value
            else:
                array[location] = value
            np.testing.assert_array_equal(np.asarray(array), body)
            array.close()

    def test_views_of_views_write_into_the_same_memory(self) -> None:
        array, body = self.filled()
        firsts: list[Any] = [slice(1, 4), [3, 1, 0]]
        seconds: list[Any] = [0, slice(None, None, -1), [2, 0]]
        for number, (first, second) in enumerate(itertools.product(firsts, seconds), start=90):
            array[first][second] = number
            rows = np.asarray(np.arange(4)[first])[second]
            body[rows] = number
            np.testing.assert_array_equal(np.asarray(array), body)
        array.close()

    def test_numpy_view_is_not_a_copy(self) -> None:
        array, body = self.filled()
        # Compiled loops write to the result of `np.asarray`: writes to a copy would be lost.
        np.asarray(array)[1, 2, 0] = np.asarray(array[2:])[1, 0, 0] = 50
        body[1, 2, 0] = body[3, 0, 0] = 50
        np.testing.assert_array_equal(np.asarray(array), body)
        array.close()

    def test_rows_are_not_counted_from_the_end(self) -> None:
        array, body = self.filled()
        # With padding, row -1 is the row before the batch. Without padding the same code must get an error,
        # not the last row.
        for location in (-1, [-1], (-1, 0), slice(-1, None), slice(0, -1)):
            with pytest.raises(IndexError, match="row -1"):
                array[location]
        with pytest.raises(IndexError, match="row 4"):
            array[4]
        np.testing.assert_array_equal(np.asarray(array[array.last]), body[3])
        array.close()

    def test_iteration_ends(self) -> None:
        array, body = self.filled()
        # Python's default iteration counts up to an IndexError, so it would include padding, or never end.
        rows = [np.asarray(row) for row in itertools.islice(array, 10)]
        np.testing.assert_array_equal(rows, body)
        array.close()

    def test_equality_is_by_place(self) -> None:
        array, _ = self.filled()
        other, _ = self.filled()
        # Fields are compared to find out whether they share memory. Equal numbers do not show that: new
        # buffers are all zeros.
        assert array == array[...] == array[0:4]
        assert array[[1, 2]] == array[1:3]
        assert array[1] != array[2]
        assert array != other
        array.close()
        other.close()

    def test_windows_follow_each_other_and_come_round(self) -> None:
        array = self.make(self.shape, np.int64, 0, 12)
        early = array[1]
        for batch in range(4):
            array[...] = batch
            array.rotate()
        assert np.asarray(array.full)[:, 0, 0].tolist() == [3] * 4 + [1] * 4 + [2] * 4
        assert array == array.full[4:8]
        assert early == array.full[1]
        array.reset()
        assert array == array.full[0:4]
        array.close()

    def test_neighbours_in_time(self) -> None:
        array, body = self.filled()
        for location in (slice(1, 3), [2, 1], 1):
            rows = np.arange(4)[location]
            np.testing.assert_array_equal(np.asarray(array[location].next), body[rows + 1])
            np.testing.assert_array_equal(np.asarray(array[location].previous), body[rows - 1])
        with pytest.raises(IndexError, match="no row before"):
            _ = array.previous
        with pytest.raises(IndexError, match="no row after"):
            _ = array[[3]].next
        array.close()

    def test_close_ends_use_and_keeps_what_was_handed_out(self) -> None:
        array, body = self.filled()
        view, seen = array[1:], np.asarray(array)
        array.close()
        array.close()
        # numpy's view still exists, and must not point to released memory: that would crash.
        np.testing.assert_array_equal(seen, body)
        with pytest.raises(ClosedError, match=r"after close\(\)"):
            np.asarray(view)
        with pytest.raises(ClosedError, match=r"after close\(\)"):
            array[0] = 1


class RotatingArrayContract(ArrayContract):
    """Tests of an Array class with padding, in addition to `ArrayContract`."""

    @pytest.mark.parametrize("padding", [1, 3, 4])
    def test_padding_is_reached_by_row_number_alone(self, padding: int) -> None:
        array, body = self.filled(padding)
        array[-padding:0] = -1
        array[4 : 4 + padding] = -2
        np.testing.assert_array_equal(np.asarray(array), body)
        np.testing.assert_array_equal(np.asarray(array[:]), body)
        assert (np.asarray(array[array.first - 1]) == -1).all()
        assert (np.asarray(array[array.last + 1]) == -2).all()
        array[array.last + 1, 2, 1] = 9
        assert np.asarray(array[4])[2].tolist() == [-2, 9]
        with pytest.raises(IndexError, match=f"row {-padding - 1} lies before"):
            array[-padding - 1]
        with pytest.raises(IndexError, match=f"row {4 + padding} lies after"):
            array[[4 + padding]]
        array.close()

    @pytest.mark.parametrize("padding", [1, 3, 4])
    @pytest.mark.parametrize("windows", [1, 3])
    # With one window the rows are copied to the beginning; with several they are the next rows in memory.
    # Otherwise a recurrent agent, or a bootstrap value, would see the wrong row once per batch.
    def test_what_followed_a_batch_starts_the_next(self, padding: int, windows: int) -> None:
        array = self.make(self.shape, np.int64, padding, windows * 4)
        for batch in range(2 * windows + 1):
            for t in range(4 + padding):
                array[t] = 4 * batch + t
            array.rotate()
            for t in range(-padding, padding):
                assert (np.asarray(array[t]) == 4 * (batch + 1) + t).all()
        array.close()

    def test_views_stay_where_they_were_made(self) -> None:
        array, body = self.filled(padding=1, windows=2)
        # The last batch may still be in use by a learner that runs beside the sampler.
        views = [array[1:3], array[[3, 1]], array[1:3].next]
        array.rotate()
        for view, expected in zip(views, (body[1:3], body[[3, 1]], body[2:4]), strict=True):
            np.testing.assert_array_equal(np.asarray(view), expected)
        array.close()
