from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from array_model import FREE, MIXED, ROWS, Picked, make_pair
from hypothesis import given
from hypothesis import strategies as st

from parllel.arrays import Array, RotatingArray

SHAPES = [(4,), (5, 3), (4, 3, 2), (3, 2, 1), (6, 2, 2, 3), (1, 1)]


@st.composite
def pairs(draw: st.DrawFn) -> Any:
    shape = draw(st.sampled_from(SHAPES))
    padding = draw(st.integers(0, min(shape[0], 3)))
    windows = draw(st.integers(1, 3))
    array, model = make_pair(RotatingArray, shape, padding, windows)
    for _ in range(draw(st.integers(0, 4))):
        array.rotate()
        model.rotate()
    return array, model


def rows_of(picked: Picked, axis: int) -> range:
    """Row or column numbers that may be asked for along a dimension."""
    n = picked.shape[axis]
    if axis:
        return range(-n, n)
    margin = len(picked.before)
    low = {ROWS: -margin, FREE: -n, MIXED: 0}[picked.rule]
    return range(low, n + margin)


@st.composite
def slices(draw: st.DrawFn, picked: Picked, axis: int) -> slice:
    n = picked.shape[axis]
    low = -n - 2 if axis else rows_of(picked, 0).start
    ends = st.none() | st.integers(low, n + 5)
    step = st.none() | st.integers(-4, 4).filter(bool)
    return slice(draw(ends), draw(ends), draw(step))


@st.composite
def locations(draw: st.DrawFn, picked: Picked) -> Any:
    """Draw anything that numpy takes as an index, new axes left out."""
    ndim = len(picked.shape)
    length = draw(st.integers(0, 4))  # all lists of one index have to fit together
    items: list[Any] = []
    kinds = ["int", "numpy int", "slice", "list", "array", "column", "mask"]
    masked = listed = dotted = False
    axis = 0
    while axis < ndim and draw(st.integers(0, 4)):
        if not dotted and not draw(st.integers(0, 4)):
            dotted, axis = True, draw(st.integers(axis + 1, ndim))
            items.append(Ellipsis)
            continue
        kind = draw(st.sampled_from(kinds))
        allowed = rows_of(picked, axis)
        if kind == "mask" and not masked and not listed:
            masked, wide = True, draw(st.integers(1, ndim - axis))
            size = int(np.prod(picked.shape[axis : axis + wide]))
            bits = draw(st.lists(st.booleans(), min_size=size, max_size=size))
            mask = np.array(bits, bool).reshape(picked.shape[axis : axis + wide])
            items.append(mask.tolist() if wide == 1 and size and draw(st.booleans()) else mask)
            axis += wide
            continue
        if kind in ("int", "numpy int") and allowed:
            number = draw(st.sampled_from(allowed))
            items.append(number if kind == "int" else np.int16(number))
        elif kind in ("list", "array", "column") and not masked and (allowed or not length):
            listed = True
            numbers = [draw(st.sampled_from(allowed)) for _ in range(length)]
            as_array = np.array(numbers, draw(st.sampled_from([np.int8, np.int64])))
            options = {"list": numbers, "array": as_array, "column": as_array[:, None]}
            items.append(options[kind])
        else:
            items.append(draw(slices(picked, axis)))
        axis += 1
    if dotted:
        items += [slice(None)] * (ndim - axis)
    elif draw(st.booleans()):
        items.append(Ellipsis)
    if len(items) == 1 and draw(st.booleans()):
        return items[0]
    return tuple(items)


@given(st.data())
def test_chain_of_indices_shows_the_elements_that_numpy_shows(data: st.DataObject) -> None:
    array, model = data.draw(pairs())
    view, picked = array, model.body
    for _ in range(data.draw(st.integers(1, 3))):
        location = data.draw(locations(picked))
        view, picked = view[location], picked.index(location)
        model.agree(view, picked)
        assert view.ndim == picked.ids.ndim
        assert view.size == picked.ids.size


@given(st.data())
def test_writing_through_a_chain_lands_in_the_memory(data: st.DataObject) -> None:
    array, model = data.draw(pairs())
    view, picked = array, model.body
    for _ in range(data.draw(st.integers(0, 2))):
        location = data.draw(locations(picked))
        view, picked = view[location], picked.index(location)
    location = data.draw(locations(picked))
    target = picked.index(location)
    scalar = data.draw(st.booleans())
    # Where a list names an element twice, the last value stays, as in numpy.
    value = 7 if scalar else 5000 + np.arange(target.ids.size).reshape(target.shape)
    view[location] = value
    model.write(target, value)
    np.testing.assert_array_equal(array.block.memory, model.values[model.ids])


@given(st.data())
def test_views_keep_their_place_whatever_is_made_or_read_after_them(data: st.DataObject) -> None:
    array, model = data.draw(pairs())
    made = [(array, model.body)]
    for _ in range(data.draw(st.integers(2, 6))):
        parent, picked = made[data.draw(st.integers(0, len(made) - 1))]
        location = data.draw(locations(picked))
        made.append((parent[location], picked.index(location)))
        if data.draw(st.booleans()):
            np.asarray(made[-1][0])
    for view, picked in data.draw(st.permutations(made)):
        model.agree(view, picked)


@given(st.data())
def test_write_of_one_view_into_another_that_overlaps_it(data: st.DataObject) -> None:
    array, model = data.draw(pairs())
    T = array.shape[0]
    length = data.draw(st.integers(0, T))
    a, b = (data.draw(st.integers(0, T - length)) for _ in "ab")
    array[a : a + length] = array[b : b + length]
    model.write(
        model.body.index(slice(a, a + length)), model.read(model.body.index(slice(b, b + length)))
    )
    np.testing.assert_array_equal(array.block.memory, model.values[model.ids])


@pytest.mark.parametrize("padding", [0, 1, 4])
def test_negative_row_is_the_row_before_the_first(padding: int) -> None:
    array, model = make_pair(RotatingArray, (4, 3), padding, 1)
    for row in range(-padding, 4 + padding):
        expected = model.values[model.ids[padding + row]]
        for index in (row, np.int64(row), np.array(row), (row, ...), (row, slice(None))):
            np.testing.assert_array_equal(np.asarray(array[index]), expected)
        np.testing.assert_array_equal(np.asarray(array[[row]]), expected[None])
        np.testing.assert_array_equal(np.asarray(array[[row], 1:]), expected[None, 1:])
    assert array.first == 0
    assert array.last == 3
    np.testing.assert_array_equal(np.asarray(array[array.last]), np.asarray(array)[-1])


@pytest.mark.parametrize("padding", [0, 1, 4])
def test_rows_beyond_the_padding_are_refused(padding: int) -> None:
    array, _ = make_pair(RotatingArray, (4, 3), padding, 2)
    low, high = -padding - 1, 4 + padding
    for index in (low, np.int64(low), [low], [0, low], np.array([[low]]), (low, 0), (low, [0])):
        with pytest.raises(IndexError, match=r"lies before the first row: .*use a\[a\.last\]"):
            array[index]
        with pytest.raises(IndexError, match="lies before the first row"):
            array[index] = 0
    for index in (high, [high], (high, 0), ([0, high], 0)):
        with pytest.raises(IndexError, match=f"row {high} lies after the last row"):
            array[index]
        with pytest.raises(IndexError, match="lies after the last row"):
            array[index] = 0
    for index in (slice(low, None), slice(None, low), slice(3, low, -1)):
        with pytest.raises(IndexError, match=f"row {low} lies before the first row"):
            array[index]


@pytest.mark.parametrize(
    ("location", "rows"),
    [
        (slice(None), [0, 1, 2, 3]),
        (slice(-1, None), [-1, 0, 1, 2, 3]),
        (slice(-2, 1), [-2, -1, 0]),
        (slice(2, 6), [2, 3, 4, 5]),
        (slice(3, 99), [3]),
        (slice(0, 7), [0, 1, 2, 3]),
        (slice(99, None), []),
        (slice(99, 6), []),
        (slice(5, 99), []),
        (slice(None, None, -1), [3, 2, 1, 0]),
        (slice(5, None, -2), [5, 3, 1]),
        (slice(1, -2, -1), [1, 0, -1]),
        (slice(-1, -1), []),
        (slice(99, None, -3), [3, 0]),
        (slice(5, 99, -1), []),
    ],
)
def test_ends_of_a_slice_are_row_numbers(location: slice, rows: list[int]) -> None:
    array, model = make_pair(RotatingArray, (4, 2), 2, 1)
    expected = model.values[model.ids[np.array(rows, int) + 2]]
    np.testing.assert_array_equal(np.asarray(array[location]), expected)
    np.testing.assert_array_equal(np.asarray(array[location, [0, 1, 0]]), expected[:, [0, 1, 0]])


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:],
        lambda a: a[...],
        lambda a: a[()],
        lambda a: a[0:2],
        lambda a: a[::-1],
        lambda a: a[:, 0],
        lambda a: a[:, [0, 1]],
        lambda a: a[:, np.array([True, False, True])],
        lambda a: a[[0, 2, 1]],
        lambda a: a[[0, 2, 1], 1:],
        lambda a: a[:, [0, 1]][1:],
        lambda a: a[[0, 2, 1]][[1, 0]],
        lambda a: a.full,
        lambda a: a.next,
    ],
)
def test_no_view_that_still_leads_with_time_counts_rows_from_its_end(view: Any) -> None:
    array, _ = make_pair(RotatingArray, (4, 3), 1, 1)
    shown = view(array)
    assert shown.padding == 0
    for index in (-1, [-1], (-1, ...), slice(-1, None), slice(0, -1), ([-1],)):
        with pytest.raises(IndexError, match="row -1 lies before the first row"):
            shown[index]
        with pytest.raises(IndexError, match="row -1 lies before the first row"):
            shown[index] = 0


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[2],
        lambda a: a[2, :, [1, 0]],
        lambda a: a[[0, 1], [1, 2]],
        lambda a: a[np.eye(4, 3, dtype=bool)],
        lambda a: a[:, [0, 1], :, [0, 0]],
        lambda a: a[1, [0, 1]][:, 0],
    ],
)
def test_where_time_is_gone_numpy_counts_from_the_end(view: Any) -> None:
    array, model = make_pair(RotatingArray, (4, 3, 2, 2), 1, 1)
    body = model.read(model.body)
    np.testing.assert_array_equal(np.asarray(view(array)[-1]), view(body)[-1])
    np.testing.assert_array_equal(np.asarray(view(array)[-2:]), view(body)[-2:])


@pytest.mark.parametrize("flag", [True, False, np.True_, np.array(True)])
def test_single_bool_is_refused(flag: Any) -> None:
    array = RotatingArray((4, 3), np.int64)
    for location in (flag, (flag, 0), (0, flag), (slice(None), flag), (slice(None), [0], flag)):
        with pytest.raises(IndexError, match="single bool is not an index"):
            array[location]
    with pytest.raises(IndexError, match="single bool is not an index"):
        array[:, [0]][flag]
    with pytest.raises(IndexError, match="single bool is not an index"):
        array[flag] = 1


def test_mask_of_another_shape_is_refused() -> None:
    array = RotatingArray((4, 3), np.int64)
    for mask in (np.ones(5, bool), np.ones((4, 2), bool), np.ones(6, bool)):
        with pytest.raises(IndexError, match=r"mask of shape .* does not fit"):
            array[mask]
    with pytest.raises(IndexError, match=r"mask of shape \(4,\) does not fit dimensions \(3,\)"):
        array[0][np.ones(4, bool)]
    with pytest.raises(IndexError, match="mask of shape"):
        array[:, np.ones(4, bool)]


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ((0, 3), "index 3 is out of bounds for dimension 1 with size 3"),
        ((0, -4), "index -4 is out of bounds for dimension 1 with size 3"),
        ((slice(None), [0, 3]), "out of bounds"),
        ((0, [0, 3]), "out of bounds"),
        (([0, 1], [0, 1, 2]), "broadcast"),
        ((0, 0, 0), "too many indices: the array has 2 dimensions, 3"),
        ((..., 0, ...), "only one ellipsis"),
        (([0, 1], ..., [0, 1]), "covers no dimension"),
        (None, "new axes are not supported"),
        ((0, None), "new axes are not supported"),
        (1.5, "expected int, slice"),
        ("reward", "expected int, slice"),
        ((0, [0.5]), "expected int, slice"),
    ],
)
def test_wrong_index_raises_when_the_view_is_made(location: Any, message: str) -> None:
    array = RotatingArray((4, 3), np.int64)
    with pytest.raises(IndexError, match=message):
        array[location]


def test_dots_may_stand_for_no_dimension() -> None:
    array, model = make_pair(RotatingArray, (4, 3), 1, 1)
    body = model.read(model.body)
    for location in ((0, ..., 1), (..., 1, 1), (slice(1, 3), ..., [0, 2]), ([1, 2], slice(1), ...)):
        np.testing.assert_array_equal(np.asarray(array[location]), body[location])


def test_wrong_index_of_a_picked_view_raises_alike() -> None:
    picked = RotatingArray((4, 3), np.int64)[[0, 1]]
    with pytest.raises(IndexError, match="new axes are not supported"):
        picked[None]
    with pytest.raises(IndexError, match="too many indices"):
        picked[0, 0, 0]
    with pytest.raises(IndexError, match="row 2 lies after the last row"):
        picked[2]


def test_zero_step_is_refused() -> None:
    array = RotatingArray((4, 3), np.int64)
    for location in (slice(None, None, 0), (0, slice(None, None, 0))):
        with pytest.raises(ValueError, match="slice step cannot be zero"):
            array[location]


def test_view_owns_its_index() -> None:
    """An index array that its owner uses again does not move the views made with it."""
    array, model = make_pair(RotatingArray, (4, 3), 1, 1)
    rows, columns, mask = np.array([0, 1]), np.array([2, 1]), np.array([True, True, False])
    body = model.read(model.body)
    views = [array[rows], array[:, columns], array[rows, columns], array[0, columns]]
    views += [array[0, mask], array[:, mask], array[:, [0, 1, 2]][:, mask]]
    expected = [body[rows], body[:, columns], body[rows, columns], body[0, columns]]
    expected += [body[0, mask], body[:, mask], body[:, mask]]
    rows[:], columns[:], mask[:] = 3, 0, ~mask
    for view, there in zip(views, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(view), there)


@pytest.mark.parametrize(
    ("dtype", "row"), [(np.uint8, 255), (np.int8, 127), (np.int8, -1), (np.uint64, 299)]
)
def test_small_index_types_do_not_overflow(dtype: type, row: int) -> None:
    array = RotatingArray((300,), np.int64)
    array[-1:301] = np.arange(-1, 301)
    assert np.asarray(array[np.array([row], dtype)]).tolist() == [row]
    assert int(np.asarray(array[dtype(row)])) == row


def test_feature_of_one_element_keeps_its_dimension() -> None:
    array = RotatingArray((4, 3, 1), np.float32)
    assert array[0].shape == (3, 1)
    assert array[0, 0].shape == (1,)
    assert np.asarray(array[0, 0]).shape == (1,)
    assert array[[0, 1], [0, 1]].shape == (2, 1)
    assert array[0, 0, 0].shape == ()
    array[1, 2] = np.array([5.0])
    assert np.asarray(array)[1, 2].tolist() == [5.0]


def test_single_elements_are_written_in_body_and_padding() -> None:
    array = RotatingArray((4, 3), np.int64)
    for row, column in itertools.product(range(-1, 5), range(3)):
        array[row, column] = 10 * row + column
    array[array.last + 1][0] = -7
    element = array[-1, 2]
    element[...] = -8
    expected = 10 * np.arange(-1, 5)[:, None] + np.arange(3)
    expected[5, 0], expected[0, 2] = -7, -8
    np.testing.assert_array_equal(np.asarray(array[-1:5]), expected)


def test_numpy_view_shares_the_memory_and_lists_copy() -> None:
    array, _ = make_pair(RotatingArray, (4, 3), 1, 1)
    for location in (..., 0, (1, 2), slice(None, None, -2), (-1, slice(1, 3))):
        seen = np.asarray(array[location])
        seen[...] = 77
        assert (np.asarray(array[location]) == 77).all()
        assert np.shares_memory(seen, array.block.memory)
    copied = np.asarray(array[[0, 1]])
    copied[...] = 0
    assert (np.asarray(array[0]) == 77).all()


def test_conversion_follows_the_array_protocol() -> None:
    array = RotatingArray((4, 3), np.float32)
    array[...] = 1.5
    assert np.asarray(array, np.int64).tolist() == np.ones((4, 3)).tolist()
    assert array.__array__(np.float32, copy=False).base is not None
    assert not np.shares_memory(array.__array__(copy=True), array.block.memory)
    with pytest.raises(ValueError, match="without a copy"):
        array.__array__(np.float64, copy=False)
    with pytest.raises(ValueError, match="without a copy"):
        array[[0, 1]].__array__(copy=False)


def test_len_and_iteration_end() -> None:
    array, model = make_pair(RotatingArray, (4, 3), 2, 2)
    rows = list(itertools.islice(iter(array), 100))
    assert len(rows) == len(array) == 4
    for row, expected in zip(rows, model.read(model.body), strict=True):
        np.testing.assert_array_equal(np.asarray(row), expected)
    assert len(list(itertools.islice(iter(array[1]), 100))) == 3
    assert len(list(itertools.islice(iter(array[[0, 1]]), 100))) == 2
    assert array[0, 0] not in array
    assert array[0] in array
    with pytest.raises(TypeError, match="without dimensions"):
        len(array[0, 0])


@given(st.data())
def test_indices_lead_back_to_the_view(data: st.DataObject) -> None:
    array, model = data.draw(pairs())
    location = data.draw(locations(model.body))
    view = array[location]
    if isinstance(view.indices[0], np.ndarray):
        body = model.body
        flat = np.concatenate([body.before, body.ids, body.after])
        offset = int(body.ids.flat[0]) - int(flat.flat[0])
        shown = model.values[flat].reshape(-1)[view.indices[0] + offset]
        np.testing.assert_array_equal(shown, np.asarray(view))
    else:
        assert array[view.indices] == view


def test_indices_are_positions_in_the_current_body() -> None:
    array, _ = make_pair(RotatingArray, (4, 3), 1, 2)
    view = array[1:3, 2]
    assert view.indices == (slice(1, 3, 1), 2)
    assert array.indices == (slice(0, 4, 1), slice(0, 3, 1))
    assert array[::-1, ::-1].indices == (slice(3, None, -1), slice(2, None, -1))
    assert array[-1, 0].indices == (-1, 0)
    array.rotate()
    assert view.indices == (slice(-3, -1, 1), 2)
    assert array[[1, 2], 0].indices[0].tolist() == [3, 6]


def test_equality_is_by_place() -> None:
    array, other = RotatingArray((4, 3), np.float32), RotatingArray((4, 3), np.float32)
    array[...], other[...] = 1, 1
    assert array == array[...] == array[:, :] == array[0:4]
    assert array[1] == array[1, :]
    assert array[1] != array[1:2]
    assert array[1] != array[2]
    assert array[[1, 2]] == array[1:3]
    assert array[[1, 2]][0] == array[1]
    assert array[[1, 2]] == array[np.array([False, True, True, False])]
    assert array[[2, 1]] == array[2:0:-1]
    assert array[::4] == array[0:1]
    assert array != other
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)
    with pytest.raises(TypeError, match="truth of an Array is ambiguous"):
        bool(array)


def test_writing_none_is_refused() -> None:
    array = Array((4, 3), np.float32)
    for location in (0, (0, 0), slice(None), [0, 1]):
        with pytest.raises(TypeError, match="Array: expected numbers to write, got None"):
            array[location] = None


def test_value_of_another_shape_is_refused() -> None:
    array = Array((4, 3), np.float32)
    for location in (0, slice(None), [0, 1], (0, slice(None))):
        with pytest.raises(ValueError, match="broadcast"):
            array[location] = np.zeros(2)


def test_array_is_a_value_for_any_other() -> None:
    array, model = make_pair(RotatingArray, (4, 3), 1, 1)
    body = model.read(model.body).copy()
    other = Array((4, 3), np.float64)
    other[...] = array
    np.testing.assert_array_equal(np.asarray(other), body)
    other[0] = array[3]
    other[[1, 2]] = array[[2, 1]]
    np.testing.assert_array_equal(np.asarray(other), body[[3, 2, 1, 3]])
    other[:, 0] = array[:, [1]][:, 0]
    np.testing.assert_array_equal(np.asarray(other)[:, 0], body[:, 1])


def test_repr_names_class_shape_and_storage() -> None:
    array = RotatingArray((4, 3), np.float32)
    assert repr(array) == "<RotatingArray (4, 3) float32, local>"
    assert repr(array[0]) == "<view of RotatingArray (3,) float32, local>"
    array.close()
    assert repr(array) == "<closed RotatingArray>"
