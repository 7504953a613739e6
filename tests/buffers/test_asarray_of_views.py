from __future__ import annotations

import numpy as np
import pytest

from parllel.arrays import Array
from parllel.buffers import NamedArrayTuple, allocate, buffer_asarray
from parllel.types import BatchSpec

T, B = 4, 3
EXAMPLES = {
    "observation": {"camera": np.zeros((2, 2), np.uint8), "speed": np.zeros(3, np.float32)},
    "reward": np.float32(0),
    "info": None,
}
PATHS = [("observation", "camera"), ("observation", "speed"), ("reward",)]


def at(tree, path):
    for name in path:
        tree = getattr(tree, name)
    return tree


def filled(batches=1):
    tree = allocate(EXAMPLES, BatchSpec(T, B), batches=batches)
    for i, path in enumerate(PATHS):
        leaf = at(tree, path)
        leaf.block.memory[:] = np.arange(leaf.block.memory.size).reshape(leaf.block.shape) + i
    return tree


@pytest.mark.parametrize(
    "locations",
    [
        [(1, 2)],
        [2],
        [slice(1, 3)],
        [(1, slice(0, 2))],
        [(slice(None), [0, 2])],
        [2, 1],
        [(1,), (0,)],
    ],
    ids=repr,
)
def test_views_become_the_arrays_that_numpy_would_select(locations):
    tree = filled()
    view, expected = tree, {path: np.array(at(tree, path)) for path in PATHS}
    for location in locations:
        view = view[location]
        expected = {path: array[location] for path, array in expected.items()}
    plain = buffer_asarray(view)
    assert isinstance(plain, NamedArrayTuple)
    assert plain._fields == tree._fields
    assert plain.info is None
    for path in PATHS:
        assert isinstance(at(plain, path), np.ndarray)
        np.testing.assert_array_equal(at(plain, path), expected[path])


def test_arrays_of_a_view_share_the_memory_and_can_be_indexed_on():
    tree = filled()
    plain = buffer_asarray(tree[1])
    plain[2] = 0
    for path in PATHS:
        assert not np.asarray(at(tree, path))[1, 2].any()
        assert np.asarray(at(tree, path))[2, 2].any()


def test_arrays_of_an_older_view_stay_where_the_window_was():
    tree = filled(batches=2)
    view = tree[1, 2]
    expected = np.array(at(view, ("reward",)))
    tree.reward.rotate()
    np.testing.assert_array_equal(buffer_asarray(view).reward, expected)
    assert buffer_asarray(tree[1, 2]).reward != expected


def test_an_array_that_two_fields_share_is_shared_by_its_views():
    array = Array((T, B), np.float32)
    plain = buffer_asarray(NamedArrayTuple(one=array, other=array)[1, 1])
    plain.one[...] = 5
    assert plain.other == 5
