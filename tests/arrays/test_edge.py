from __future__ import annotations

import numpy as np
import pytest

from parllel.arrays import Array, LazyFramesArray, RotatingArray
from parllel.arrays.switching import SwitchingArray, SwitchingRotatingArray

T, B, K = 5, 3, 4


def make_rotating(seed):
    array = RotatingArray((T, B, 2), np.float32, padding=2)
    array[-2 : T + 2] = np.random.default_rng(seed).random((T + 4, B, 2))
    return array


def make_switching(seed):
    array = SwitchingRotatingArray((T, B), np.int16, padding=1)
    for _ in range(seed):
        array.rotate()
    array[-1 : T + 1] = np.random.default_rng(seed).integers(-99, 99, (T + 2, B))
    return array


def make_frames(seed):
    array = LazyFramesArray((T, B, K, 2), np.uint8, padding=1)
    generator = np.random.default_rng(seed)
    stacks = generator.integers(0, 99, (B, K, 2), np.uint8)
    for t in range(T + 1):
        stacks = np.concatenate(
            [stacks[:, 1:], generator.integers(0, 99, (B, 1, 2), np.uint8)], axis=1
        )
        cells = array.writers(t, slice(0, B))
        for b in range(B):
            cells[b] = stacks[b]
    return array


@pytest.mark.parametrize("make", [make_rotating, make_switching, make_frames])
def test_what_is_carried_can_be_kept_and_taken_back(make):
    array, other = make(1), make(2)
    edge = array.edge()
    expected_row = np.array(array[array.last + 1])
    array.rotate()
    for rows in array.edge():  # copies: what is written later is not in them
        rows[...] = 0
    other.load_edge(edge)
    other.rotate()
    np.testing.assert_array_equal(np.asarray(other[0]), expected_row)
    np.testing.assert_array_equal(np.asarray(other[0]), np.asarray(array[0]))
    if array.padding:
        np.testing.assert_array_equal(np.asarray(other[-1]), np.asarray(array[-1]))


@pytest.mark.parametrize("array", [Array((T, B), np.float32), SwitchingArray((T, B), np.float32)])
def test_without_padding_nothing_is_carried(array):
    assert array.edge() == []
    array.load_edge([])


def test_the_edge_of_another_array_is_refused():
    array = make_rotating(1)
    before = [rows.copy() for rows in array.edge()]
    with pytest.raises(ValueError, match=r"edge rows: expected .*\(4, 3, 2\).*, got .*int16"):
        array.load_edge(make_switching(1).edge())
    with pytest.raises(ValueError, match=r"edge rows: expected .*, got \[\]"):
        array.load_edge([])
    for rows, kept in zip(array.edge(), before, strict=True):
        np.testing.assert_array_equal(rows, kept)


def test_a_view_has_none():
    with pytest.raises(ValueError, match=r"edge\(\): expected a whole array"):
        make_rotating(1)[0].edge()
