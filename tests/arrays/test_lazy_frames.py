"""Stacks that are stored frame by frame, compared with stacks that are stored whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frame_streams import Stacker, filled, stacks_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parllel.arrays import LazyFramesArray, RotatingArray
from parllel.testing.array_contract import LOCATIONS

# ---------------------------------------------------------------------- what is written is read


class Both:
    """The same rows in both kinds of array, and which rows hold anything."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, padding: int, windows: int) -> None:
        options: Any = {"padding": padding, "full_size": windows * shape[0]}
        self.lazy = LazyFramesArray(shape, dtype, **options)
        self.whole = RotatingArray(shape, dtype, **options)
        self.T, self.depth = shape[0], shape[2]
        self.written: set[int] = set()

    def write(self, t: int, b: int, stack: Any) -> None:
        self.lazy[t, b] = stack
        self.whole[t, b] = stack
        self.written.add(t)
        np.testing.assert_array_equal(self.lazy.staged()[b], stack)

    def rotate(self) -> None:
        self.lazy.rotate()
        self.whole.rotate()
        padding = self.whole.padding
        kept = {t - self.T for t in self.written if t - self.T < padding}
        self.written = {t for t in kept if t >= -padding}

    def agree(self) -> None:
        for t in sorted(self.written):
            np.testing.assert_array_equal(self.lazy[t], self.whole[t], err_msg=f"row {t}")
        rows = np.array(sorted(self.written))
        B = self.whole.shape[1]
        at, columns = np.repeat(rows, B), np.tile(np.arange(B), len(rows))
        np.testing.assert_array_equal(self.lazy.gather(at, columns), self.whole[at, columns])
        if self.written >= set(range(self.T)):
            np.testing.assert_array_equal(self.lazy, self.whole)


@settings(max_examples=150)
@given(
    T=st.integers(1, 6),
    B=st.integers(1, 3),
    k=st.integers(1, 5),
    frame=st.sampled_from([(), (3,), (2, 2), (8,)]),
    dtype=st.sampled_from([np.uint8, np.float32, np.int64, bool]),
    padding=st.integers(0, 3),
    windows=st.integers(1, 3),
    kinds=st.lists(st.sampled_from(["reset", "zero"]), min_size=3, max_size=3),
    values=st.sampled_from([2, 200]),
    automatic=st.booleans(),
    batches=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
@example(1, 1, 4, (3,), np.uint8, 1, 1, ["reset"] * 3, 200, True, 5, 0)
@example(2, 2, 5, (3,), np.uint8, 2, 2, ["zero"] * 3, 2, False, 5, 1)
def test_batches_of_episodes_read_back_as_they_were_written(
    T: int,
    B: int,
    k: int,
    frame: tuple[int, ...],
    dtype: Any,
    padding: int,
    windows: int,
    kinds: list[str],
    values: int,
    automatic: bool,
    batches: int,
    seed: int,
) -> None:
    """With both policies: a reset takes the place of the last observation, or waits for row 0."""
    padding = min(padding, T)
    both = Both((T, B, k, *frame), dtype, padding, windows)
    rng = np.random.default_rng(seed)
    stackers = [Stacker(k, frame, dtype, kinds[b], (seed, b), values) for b in range(B)]
    waiting = [True] * B
    for _ in range(batches):
        for b in range(B):
            if waiting[b]:
                both.write(0, b, stackers[b].reset())
                waiting[b] = False
            elif not padding:  # there is no row that was carried to the front
                both.write(0, b, stackers[b].step())
        for t in range(1, T + (padding > 0)):
            for b in range(B):
                if waiting[b]:
                    both.write(t, b, 0)
                elif rng.random() < 0.25:
                    if automatic:
                        both.write(t, b, stackers[b].reset())
                    else:
                        both.write(t, b, stackers[b].step())
                        waiting[b] = True
                else:
                    both.write(t, b, stackers[b].step())
        both.agree()
        both.rotate()
        both.agree()


@pytest.mark.parametrize("windows", [2, 3, 5])
@pytest.mark.parametrize("T", [1, 2, 4])
def test_a_replay_keeps_all_stacks_but_those_right_after_the_newest(T: int, windows: int) -> None:
    k, B, full = 3, 2, T * windows
    array = LazyFramesArray((T, B, k, 5), np.uint8, full_size=full)
    whole = np.zeros((full + 1, B, k, 5), np.uint8)
    batches = 3 * windows + 1
    stream = stacks_of(batches * T + 1, B, k, (5,))
    for batch in range(batches):
        start = batch * T % full
        for t in range(T + 1):
            array[t] = stream[batch * T + t]
            # The last row is also the first of the next window.
            whole[start + t] = stream[batch * T + t]
        if batch >= windows:
            overwritten = range(start + T + 1, start + T + k)
            rows = [row for row in range(full) if row not in overwritten]
            np.testing.assert_array_equal(np.asarray(array.full)[rows], whole[rows])
            np.testing.assert_array_equal(array.full[rows], whole[rows])
        array.rotate()
        if (batch + 1) % windows == 0:
            whole[0] = whole[full]
    array.reset()
    np.testing.assert_array_equal(array, array.full[:T])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_not_a_number_and_signed_zeros_are_kept_bit_by_bit(dtype: Any) -> None:
    frames = np.array([[np.nan, 1], [-0.0, np.nan], [0.0, -0.0], [np.inf, np.nan]], dtype)
    array = LazyFramesArray((4, 1, 2, 2), dtype)
    stacks = [frames[[max(t - 1, 0), t]] for t in range(4)]
    for t, stack in enumerate(stacks):
        array[t, 0] = stack
    assert np.asarray(array)[:, 0].tobytes() == np.array(stacks).tobytes()


def test_numbers_are_cast_as_in_other_arrays() -> None:
    stacks = stacks_of(3, 2, 3, (4,), np.float64) / 3
    array = LazyFramesArray((3, 2, 3, 4), np.float32)
    array[...] = stacks
    np.testing.assert_array_equal(array, stacks.astype(np.float32))


# ---------------------------------------------------------------------- indexing


@pytest.mark.parametrize("location", LOCATIONS, ids=repr)
def test_index_selects_what_numpy_selects(location: Any) -> None:
    array, stacks = filled(padding=0)  # a slice is not clipped at T where rows follow
    expected = stacks[:4][location]
    view = array[location]
    assert view.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(view), expected)
    np.testing.assert_array_equal(array.numpy_at(location), expected)


@pytest.mark.parametrize(
    "location",
    [
        (1, 2),
        (slice(None), 1),
        (2, slice(1, None), 3),
        (slice(None), slice(None), slice(None, 2)),
        (slice(None), slice(None), -1),
        (1, 1, slice(None), [0, 2]),
        ([3, 0], slice(None), 1),
        ([3, 0], [1, 2], slice(None, None, 2)),
        ([3, 0], [1, 2], [3, 0]),
        (slice(None), [1, 0], slice(None), 2),
        (0, 0, 1, 2, 1),
        (slice(None, None, -1), slice(None, None, -2), slice(None, None, -1)),
    ],
    ids=repr,
)
def test_index_reaches_into_stacks(location: Any) -> None:
    array, stacks = filled((4, 3, 4, 3, 2))
    np.testing.assert_array_equal(array[location], stacks[:4][location])
    np.testing.assert_array_equal(array[0:4][location], stacks[:4][location])


def test_views_of_views() -> None:
    array, stacks = filled((4, 3, 4, 2))
    np.testing.assert_array_equal(array[1:, [2, 0]][1:, 0], stacks[1:4, [2, 0]][1:, 0])
    np.testing.assert_array_equal(array[[3, 1]][1], stacks[[3, 1]][1])
    np.testing.assert_array_equal(array[:, 1:][::-1, 1, 2:], stacks[:4, 1:][::-1, 1, 2:])


def test_neighbours_in_time_and_rows_beside_the_body() -> None:
    array, stacks = filled((4, 3, 3, 2))
    np.testing.assert_array_equal(array[1:3].next, stacks[2:4])
    np.testing.assert_array_equal(array.next, stacks[1:5])
    np.testing.assert_array_equal(array[array.last + 1], stacks[4])
    array.rotate()
    np.testing.assert_array_equal(array[array.first - 1], stacks[3])
    np.testing.assert_array_equal(array[0].previous, stacks[3])
    with pytest.raises(IndexError, match="row -2 lies before"):
        array[-2]
    with pytest.raises(IndexError, match="row 5 lies after"):
        array.gather([5], [0])


def test_what_it_says_of_itself() -> None:
    array = LazyFramesArray((4, 3, 2, 5), np.float32, full_size=8)
    assert array.shape == (4, 3, 2, 5)
    assert (array.frames, array.padding, array.full_size, len(array)) == (2, 1, 8, 4)
    assert (array.first, array.last, array.ndim, array.nbytes) == (0, 3, 4, 480)
    assert array.full.shape == (8, 3, 2, 5)
    assert repr(array[0]) == "<view of LazyFramesArray (3, 2, 5) float32, local>"
    assert not np.asarray(array).any()
    assert array[1, 2].indices == (1, 2, slice(0, 2, 1), slice(0, 5, 1))


def test_equality_is_by_place() -> None:
    array, _ = filled()
    other, _ = filled()
    assert array == array[...] == array[0:4]
    assert array[[1, 2]] == array[1:3]
    assert array[1] != array[2]
    assert array != other


# ---------------------------------------------------------------------- gather


def test_gather_writes_where_it_is_told() -> None:
    array, stacks = filled((4, 3, 4, 2, 2), np.int16)
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 5, 50), rng.integers(0, 3, 50)
    out = np.full((50, 4, 2, 2), -1, np.int16)
    assert array.gather(rows, columns.astype(np.uint8), out) is out
    np.testing.assert_array_equal(out, stacks[rows, columns])
    assert array.gather([], []).shape == (0, 4, 2, 2)
    view = array[3:0:-1, 1:]
    np.testing.assert_array_equal(view.gather([0, 2], [1, 0]), stacks[[3, 1], [2, 1]])


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (([0], [3]), IndexError, "expected columns from 0 to 2, got 3 to 3"),
        (([0], [-1]), IndexError, "got -1 to -1"),
        (([-2], [0]), IndexError, "row -2 lies before"),
        (([0, 1], [0]), ValueError, "expected as many columns as rows, got 2 rows and 1 columns"),
        (([[0]], [[0]]), ValueError, r"rows: expected \[N\] ints, got int64 \(1, 1\)"),
        (([0.5], [0]), ValueError, r"rows: expected \[N\] ints, got float64"),
        (
            ([0], [0], np.empty((1, 2), np.int8)),
            ValueError,
            "out: expected a contiguous array, uint8",
        ),
        (
            ([0], [0], np.empty((2, 2), np.uint8)),
            ValueError,
            "out: expected a contiguous array, uint8",
        ),
        (
            ([0, 1], [0, 1], np.empty((2, 2), np.uint8, order="F")),
            ValueError,
            "expected a contiguous array",
        ),
    ],
)
def test_gather_refuses(arguments: Any, error: Any, match: str) -> None:
    array, _ = filled()
    with pytest.raises(error, match=match):
        array.gather(*arguments)


def test_gather_wants_rows_and_columns_to_draw_from() -> None:
    array, _ = filled()
    for view in (array[0], array[:, 0], array[:, :, 0], array[[0, 1]]):
        with pytest.raises(ValueError, match="expected an array of whole rows and columns"):
            view.gather([0], [0])


# ---------------------------------------------------------------------- writing


def test_rows_columns_and_views_are_written() -> None:
    stacks = stacks_of(5, 3, 3, (2,))
    array = LazyFramesArray((4, 3, 3, 2), np.uint8)
    array[0] = stacks[0]
    array[1, [2, 0, 1]] = stacks[1, [2, 0, 1]]
    array[2][1:] = stacks[2, 1:]
    array[2:3, 0] = stacks[2:3, 0]
    array[[4, 3]] = stacks[[4, 3]]  # the earlier row first, whatever the order given
    np.testing.assert_array_equal(array, stacks[:4])
    np.testing.assert_array_equal(array[4], stacks[4])
    other = LazyFramesArray((4, 3, 3, 2), np.uint8)
    other[...] = array
    np.testing.assert_array_equal(other, stacks[:4])
    other[1:] = 7
    assert (np.asarray(other)[1:] == 7).all()


def test_stacks_that_do_not_lie_in_one_piece_are_written() -> None:
    stacks = stacks_of(4, 1, 3, (2, 2))
    array = LazyFramesArray((4, 1, 3, 2, 2), np.uint8)
    for t in range(4):
        array[t, 0] = np.asfortranarray(stacks[t, 0])
    np.testing.assert_array_equal(array, stacks)


def test_row_0_takes_a_stack_from_the_middle_of_an_episode() -> None:
    stacker = Stacker(4, (3,), np.uint8, "reset", 0)
    stacks = [stacker.reset()] + [stacker.step() for _ in range(12)]
    array = LazyFramesArray((4, 1, 4, 3), np.uint8)
    for stack in stacks[:8]:  # row 0 again and again, as decorrelation does
        array[0, 0] = stack
        np.testing.assert_array_equal(array[0, 0], stack)
    for t in range(1, 5):
        array[t, 0] = stacks[7 + t]
    np.testing.assert_array_equal(np.asarray(array)[:, 0], stacks[7:11])
    np.testing.assert_array_equal(array[4, 0], stacks[11])


def test_a_stack_that_does_not_continue_is_refused_and_changes_nothing() -> None:
    array, stacks = filled((4, 3, 3, 2))
    for unlike in (stacks[2, 1, ::-1], stacks[2, 1] + np.array([[0], [1], [0]], np.uint8)):
        with pytest.raises(ValueError, match="row 2, column 1: the stack neither continues"):
            array[2, 1] = unlike
    np.testing.assert_array_equal(array, stacks[:4])


@pytest.mark.parametrize(
    "location", [(0, 0, 1), (..., 0), (slice(None), slice(None), slice(2)), (0, 0, [0, 1, 2])]
)
def test_parts_of_stacks_are_not_written(location: Any) -> None:
    array, stacks = filled((4, 3, 3, 2))
    with pytest.raises(ValueError, match="only whole stacks can be written"):
        array[location] = 0
    np.testing.assert_array_equal(array, stacks[:4])


def test_none_and_wrong_shapes_are_not_written() -> None:
    array, _ = filled((4, 3, 3, 2))
    with pytest.raises(TypeError, match="Array: expected numbers to write, got None"):
        array[0] = None  # type: ignore[assignment]
    with pytest.raises(ValueError, match="broadcast"):
        array[0, 0] = np.zeros((2, 2))


def test_cages_write_rows_and_cells() -> None:
    stacks = stacks_of(3, 4, 3, (2,))
    array = LazyFramesArray((2, 4, 3, 2), np.uint8, padding=1, full_size=4)
    array.rotate()
    array.rotate()
    for t in range(3):
        row = array.writers(t, slice(1, 3))
        row[0] = stacks[t, 1]
        row[1, ...][...] = stacks[t, 2]
    np.testing.assert_array_equal(np.asarray(array)[:, 1:3], stacks[:2, 1:3])
    np.testing.assert_array_equal(np.asarray(array[2])[1:3], stacks[2, 1:3])
    assert not np.asarray(array)[:, [0, 3]].any()
    with pytest.raises(IndexError, match="row 3 lies after"):
        array.writers(3, slice(0, 1))


def test_staged_is_one_view_of_what_was_written_last() -> None:
    stacks = stacks_of(3, 4, 3, (2,))
    array = LazyFramesArray((2, 4, 3, 2), np.uint8)
    staged = array.staged(slice(1, 3))
    for row in stacks[:2]:
        array[0] = row
        np.testing.assert_array_equal(staged, row[1:3])
    array[1] = stacks[2]
    np.testing.assert_array_equal(staged, stacks[2, 1:3])
    array.rotate()
    np.testing.assert_array_equal(staged, stacks[2, 1:3])
