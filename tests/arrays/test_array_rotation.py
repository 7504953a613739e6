from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from array_model import ArrayModel, make_pair
from hypothesis import given
from hypothesis import strategies as st

from parllel.arrays import Array, RotatingArray

LAYOUTS = [  # shape, padding, windows
    ((4, 2), 0, 1),
    ((4, 2), 1, 1),
    ((4, 2), 3, 1),
    ((4, 2), 4, 1),  # padding equal to T
    ((1, 2), 1, 1),
    ((4, 2), 0, 3),
    ((4, 2), 1, 3),
    ((4, 2), 4, 3),
    ((1, 2), 1, 4),
    ((3,), 2, 2),
]


@pytest.mark.parametrize("windows", [1, 3])
def test_view_made_before_a_rotation_stays_where_it_was(windows: int) -> None:
    array, model = make_pair(RotatingArray, (4, 2), 1, windows)
    locations: list[Any] = [1, slice(1, 3), [3, 0], (slice(None), [1]), -1, 4, (2, 1), ...]
    views = [array[location] for location in locations]
    views += [array.next, array[1:].previous, array.full, array[[0, 1]][1:]]
    picked = [model.body.index(location) for location in locations]
    around = np.concatenate([model.body.before, model.body.ids, model.body.after])
    shown = [model.read(p) for p in picked]
    shown += [model.values[ids] for ids in (around[2:], around[1:4], model.full().ids)]
    shown += [model.read(model.body)[1:2]]
    for view, values in zip(views, shown, strict=True):
        np.testing.assert_array_equal(np.asarray(view), values)
    array.rotate()
    model.rotate()
    if windows == 1:  # the same memory, in which two rows were carried to the front
        body = np.asarray(array[-1:1])
        np.testing.assert_array_equal(body, model.values[around[:2]])
    for view, place in zip(views, picked, strict=False):
        model.agree(view, place)
        view[...] = 7
        model.write(place, 7)
        model.agree(view, place)
    np.testing.assert_array_equal(array.block.memory, model.values[model.ids])


OPERATIONS = st.lists(
    st.sampled_from(["rotate", "reset", "write", "view", "edge"]), min_size=1, max_size=20
)


@given(st.sampled_from(LAYOUTS), OPERATIONS, st.data())
def test_any_history_of_writing_and_rotating(
    layout: tuple[tuple[int, ...], int, int], operations: list[str], data: st.DataObject
) -> None:
    shape, padding, windows = layout
    array, model = make_pair(RotatingArray, shape, padding, windows)
    views = []
    for number, operation in enumerate(operations):
        row = data.draw(st.integers(-padding, shape[0] + padding - 1))
        if operation == "rotate":
            array.rotate()
            model.rotate()
        elif operation == "reset":
            array.reset()
            model.window = 0
        elif operation == "write":
            array[row] = number
            model.write(model.body.index(row), number)
        elif operation == "edge":
            array[array.last + 1 - shape[0]] = -number
            model.write(model.body.index(0), -number)
        else:
            views.append((array[row:], model.body.index(slice(row, None))))
    np.testing.assert_array_equal(array.block.memory, model.values[model.ids])
    model.agree(array, model.body)
    for view, picked in views:
        model.agree(view, picked)


def neighbour(model: ArrayModel, ids: Any, by: int) -> Any:
    """Element numbers one row on: by looking each one up in a table of rows."""
    table = {int(n): at for at, n in np.ndenumerate(model.ids)}
    out = [table[int(n)] for n in np.ravel(ids)]
    moved = [(at[0] + by, *at[1:]) for at in out]
    if any(not 0 <= at[0] < len(model.ids) for at in moved):
        return None
    return np.array([model.ids[at] for at in moved], int).reshape(np.shape(ids))


SHIFTABLE: list[Any] = [
    ...,
    slice(0, 2),
    slice(1, 3),
    slice(None, None, -1),
    slice(2, None, -2),
    0,
    3,
    (1, 1),
    [0, 2],
    [1, 2],
    [3, 1],
    (slice(None), [1]),
    (slice(None, None, -1), [1, 0]),
    ([1, 2], [0, 1]),
    np.array([False, True, True, False]),
    np.eye(4, 2, dtype=bool),
    slice(2, 2),
    (slice(None), slice(0, 0)),
    [],
]


@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("windows", [1, 3])
@pytest.mark.parametrize("chained", [None, slice(None, None, -1), [0]])
def test_previous_and_next_are_one_step_earlier_and_later(
    padding: int, windows: int, chained: Any
) -> None:
    for turns in range(windows):
        array, model = make_pair(RotatingArray, (4, 2), padding, windows)
        for _ in range(turns):
            array.rotate()
            model.rotate()
        for location in SHIFTABLE:
            view, picked = array[location], model.body.index(location)
            if chained is not None and picked.ids.ndim and picked.ids.size:
                view, picked = view[chained], picked.index(chained)
            for by, name in ((-1, "previous"), (1, "next")):
                ids = neighbour(model, picked.ids, by)
                if ids is None:
                    with pytest.raises(IndexError, match=r"has no row (before|after) the"):
                        getattr(view, name)
                    continue
                if not ids.size:
                    continue
                shifted = getattr(view, name)
                assert shifted.shape == view.shape
                np.testing.assert_array_equal(np.asarray(shifted), model.values[ids])
                shifted[...] = model.values[ids]
                np.testing.assert_array_equal(array.block.memory, model.values[model.ids])


def test_previous_of_a_reversed_list_is_not_clipped() -> None:
    array = Array((4,), np.int64)
    array[...] = np.arange(4)
    assert np.asarray(array[::-1][[1, 2]].next).tolist() == [3, 2]
    assert np.asarray(array[[1, 2]].previous).tolist() == [0, 1]


def test_no_rows_have_neighbours_without_rows() -> None:
    array = Array((4, 2), np.int64)
    for view in (array[2:2], array[0:0], array[[]], array[0:0, 0:0]):
        for shifted in (view.next, view.previous):
            assert shifted.shape == view.shape
            assert np.asarray(shifted).shape == view.shape


def test_rotation_belongs_to_the_whole_array() -> None:
    array = RotatingArray((4, 2), np.float32)
    for name in ("rotate", "reset"):
        for view in (array[0], array[...], array.full, array.next):
            with pytest.raises(ValueError, match=rf"{name}\(\): expected a whole array"):
                getattr(view, name)()
    assert array[...].is_view
    assert not array.is_view


def test_fast_writes_follow_the_window() -> None:
    array = Array((2, 2), np.int64, full_size=6)
    for batch in range(4):
        array[0, 0], array[1] = batch, 10 + batch
        array.rotate()
    assert np.asarray(array.full)[:, 0].tolist() == [3, 13, 1, 11, 2, 12]
