from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from parllel.arrays.kinds import array_class
from parllel.arrays.switching import (
    SwitchingArray,
    SwitchingManagedMemoryArray,
    SwitchingRotatingArray,
    SwitchingRotatingManagedMemoryArray,
)
from parllel.buffers import NamedArrayTuple, add_fields, allocate
from parllel.buffers.tree import buffer_arrays, buffer_rotate
from parllel.types import BatchSpec

# ---------------------------------------------------------------------- against a model


class Model:
    """Sides as arrays of their own; row numbers are shifted by the padding."""

    def __init__(self, T: int, padding: int, n_sides: int) -> None:
        self.T, self.padding = T, padding
        self.sides = [np.zeros((T + 2 * padding, 2), np.int64) for _ in range(n_sides)]
        self.side = 0

    def rotate(self) -> None:
        old = self.sides[self.side]
        self.side = (self.side + 1) % len(self.sides)
        for row in range(-self.padding, self.padding):
            self.sides[self.side][row + self.padding] = old[row + self.T + self.padding]

    def row(self, t: int, side: int | None = None) -> NDArray[np.int64]:
        return self.sides[self.side if side is None else side][t + self.padding]


OPERATIONS = st.lists(
    st.sampled_from(["rotate", "rotate", "write", "view", "reset", "side"]), max_size=30
)


@given(
    st.sampled_from([(3, 0, 2), (3, 1, 2), (2, 2, 2), (3, 2, 3), (3, 3, 2)]), OPERATIONS, st.data()
)
def test_any_history_agrees_with_separate_arrays(
    layout: tuple[int, int, int], operations: list[str], data: st.DataObject
) -> None:
    T, padding, n_sides = layout
    cls = SwitchingRotatingArray if padding else SwitchingArray
    array, model = cls((T, 2), np.int64, padding=padding, full_size=n_sides * T), Model(*layout)
    views = []
    for number, operation in enumerate(operations, start=1):
        t = data.draw(st.integers(-padding, T + padding - 1))
        if operation == "rotate":
            array.rotate()
            model.rotate()
        elif operation == "write":
            array[t] = number
            model.row(t)[...] = number
        elif operation == "view":
            views.append((array[t], t, model.side))
        elif operation == "reset":
            array.reset()
            model.side = 0
        else:
            model.side = array.side = data.draw(st.integers(0, n_sides - 1))
        assert array.side == model.side
        for row in range(-padding, T + padding):
            np.testing.assert_array_equal(np.asarray(array[row]), model.row(row))
        for view, row, side in views:
            np.testing.assert_array_equal(np.asarray(view), model.row(row, side))


@pytest.mark.parametrize("side", [0, 1])
def test_neighbours_are_on_the_same_side(side: int) -> None:
    plain = SwitchingArray((3, 2), np.int64)
    padded = SwitchingRotatingArray((3, 2), np.int64)
    plain.side = padded.side = side
    padded[-1:4] = np.arange(10).reshape(5, 2)
    np.testing.assert_array_equal(np.asarray(padded.next)[:, 0], [4, 6, 8])
    np.testing.assert_array_equal(np.asarray(padded[[0, 2]].previous)[:, 0], [0, 4])
    for array, location in ((plain, slice(0, 1)), (plain, [0]), (padded, -1)):
        with pytest.raises(IndexError, match="no row before the first"):
            _ = array[location].previous
    for array, location in ((plain, slice(2, 3)), (plain, [2]), (padded, 3)):
        with pytest.raises(IndexError, match="no row after the last"):
            _ = array[location].next


def test_full_holds_the_bodies_of_all_sides() -> None:
    array = SwitchingRotatingArray((2, 1), np.int64, padding=2)
    for side in range(2):
        array[-2:4] = 10 * side + np.arange(6)[:, np.newaxis]
        array.rotate()
    # Rows 0 and 1 of side 0 were carried there from rows 2 and 3 of side 1.
    assert np.asarray(array.full).ravel().tolist() == [14, 15, 12, 13]
    array.full[3] = -1
    array.side = 1
    assert np.asarray(array[1]).tolist() == [-1]


# ---------------------------------------------------------------------- arguments


def test_one_side_is_not_enough() -> None:
    with pytest.raises(
        ValueError,
        match="full_size: expected a multiple of 4, the rows in a batch, of at least 8, got 4",
    ):
        SwitchingArray((4, 1), np.int64, full_size=4)
    with pytest.raises(ValueError, match="full_size: expected a multiple of 4, the rows"):
        SwitchingArray((4, 1), np.int64, full_size=10)
    with pytest.raises(ValueError, match="padding: expected 0, got 1"):
        SwitchingArray((4, 1), np.int64, padding=1)


@pytest.mark.parametrize("side", [-1, 2])
def test_a_side_that_is_not_there(side: int) -> None:
    array = SwitchingArray((4, 1), np.int64)
    with pytest.raises(ValueError, match=f"side: expected 0 to 1, got {side}"):
        array.side = side


def test_a_view_has_no_other_side() -> None:
    with pytest.raises(ValueError, match="expected a whole array, got a view"):
        SwitchingArray((4, 1), np.int64)[1:].side = 1


@pytest.mark.parametrize("rotating", [False, True])
@pytest.mark.parametrize("storage", ["local", "shared", "managed"])
def test_classes_are_found_by_storage_and_layout(storage: Any, rotating: bool) -> None:
    cls = array_class(storage, rotating=rotating, switching=True)
    array = cls((3, 2), np.float32)
    assert isinstance(array, SwitchingArray)
    assert (array.storage, array.padding, array.n_sides) == (storage, int(rotating), 2)
    array.close()
    with pytest.raises(ValueError, match="storage: expected one of"):
        array_class("remote", rotating=rotating, switching=True)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- in trees


@pytest.mark.parametrize(("batches", "n_sides"), [(1, 2), (2, 2), (3, 3)])
def test_a_tree_is_allocated_in_one_arena(batches: int, n_sides: int) -> None:
    from parllel.buffers import Field

    tree = allocate(
        {"seen": Field(np.zeros(3, np.float32), padding=2), "reward": np.float64(0)},
        BatchSpec(4, 5),
        storage="managed",
        batches=batches,
        switching=True,
    )
    tree = add_fields(tree, {"more": False}, BatchSpec(4, 5), switching=True)
    arrays = buffer_arrays(tree)
    assert [array.n_sides for array in arrays] == [n_sides, n_sides, 2]
    assert arrays[0].block.arena is arrays[1].block.arena
    assert [type(array) for array in arrays] == [
        SwitchingRotatingManagedMemoryArray,
        SwitchingManagedMemoryArray,
        SwitchingArray,
    ]


def test_views_of_a_tree_stay_on_their_side() -> None:
    tree: Any = allocate({"a": np.int64(0), "b": {"c": False}}, BatchSpec(2, 1), switching=True)
    tree[0] = {"a": 5, "b": {"c": True}}
    view = tree[0]
    buffer_rotate(tree)
    tree[0] = {"a": 6, "b": {"c": False}}
    assert isinstance(view, NamedArrayTuple)
    assert (int(np.asarray(view.a)[0]), bool(np.asarray(view.b.c)[0])) == (5, True)
    buffer_rotate(tree)
    assert view.a == tree.a[0]
