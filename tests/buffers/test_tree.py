"""Functions over trees, against expectations written by hand."""

from __future__ import annotations

import typing
from typing import Any

import numpy as np
import pytest

from parllel.arrays import Array, RotatingArray
from parllel.buffers import (
    NamedArrayTuple,
    NamedTuple,
    Samples,
    buffer_asarray,
    buffer_leaves,
    buffer_map,
)
from parllel.buffers.tree import (
    buffer_arrays,
    buffer_close,
    buffer_get_attr,
    buffer_method,
    buffer_rotate,
    buffer_set_attr,
)
from parllel.errors import ClosedError


def test_map_keeps_every_kind_of_node() -> None:
    tree = NamedTuple(a=1, b={"x": 2, "y": (3, [4, None])}, c=None)
    mapped = buffer_map(lambda leaf: 10 * leaf, tree)
    assert type(mapped) is NamedTuple
    assert mapped == NamedTuple(a=10, b={"x": 20, "y": (30, [40, None])}, c=None)
    assert type(mapped.b["y"]) is tuple
    assert type(mapped.b["y"][1]) is list
    assert buffer_map(abs, -3) == 3
    assert buffer_map(abs, None) is None


def test_map_keeps_declared_classes() -> None:
    samples = Samples(agent=NamedTuple(x=1), env=NamedTuple(y=2))
    assert type(buffer_map(str, samples)) is Samples
    assert buffer_map(str, samples)._asdict() == {
        "agent": NamedTuple(x="1"),
        "env": NamedTuple(y="2"),
    }


class Point(typing.NamedTuple):
    x: Any
    y: Any


def test_map_keeps_classes_made_by_typing() -> None:
    mapped = buffer_map(lambda leaf: 10 * leaf, {"at": Point(1, (2, None))})
    assert mapped == {"at": Point(10, (20, None))}
    assert type(mapped["at"]) is Point
    assert buffer_map(lambda x, y: x + y, Point(1, 2), (3, 4)) == Point(4, 6)


def test_map_takes_further_trees_by_name_and_position() -> None:
    first = NamedTuple(a=1, b=(2, 3), c=None)
    second = {"b": [20, 30], "c": None, "a": 10}
    assert buffer_map(lambda x, y: x + y, first, second) == NamedTuple(a=11, b=(22, 33), c=None)
    assert buffer_map(lambda x, y, z: (x, y, z), 1, 2, 3) == (1, 2, 3)
    assert buffer_map(lambda x, y: x - y, {"a": 5}, NamedTuple(a=3)) == {"a": 2}


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({"a": 1}, {"b": 1}, r"fields \['a'\] and \['b'\]"),
        (NamedTuple(a=1), {"a": 1, "b": 2}, r"fields \['a'\] and \['a', 'b'\]"),
        (NamedTuple(a=1), 5, r"fields \['a'\] and int"),
        ((1, 2), (1, 2, 3), r"fields \['_0', '_1'\] and \['_0', '_1', '_2'\]"),
    ],
)
def test_map_refuses_trees_that_differ(first: Any, second: Any, text: str) -> None:
    with pytest.raises(ValueError, match=f"trees differ: {text}"):
        buffer_map(lambda x, y: x, first, second)


def test_leaves_come_with_their_paths_in_order() -> None:
    tree = NamedTuple(a=1, b={"x": 2, "y": (3, [4, None])}, c=None)
    assert list(buffer_leaves(tree)) == [("a", 1), ("b.x", 2), ("b.y._0", 3), ("b.y._1._0", 4)]
    assert list(buffer_leaves(tree.b, "there")) == [
        ("there.x", 2),
        ("there.y._0", 3),
        ("there.y._1._0", 4),
    ]
    assert list(buffer_leaves(7)) == [("", 7)]
    assert list(buffer_leaves(None)) == []


def arrays() -> tuple[RotatingArray, Array, NamedArrayTuple]:
    padded, plain = RotatingArray((3, 1), np.int32), Array((3, 2), np.float32)
    tree = NamedArrayTuple(a=padded, b=NamedArrayTuple(c=plain, same=padded, none=None))
    return padded, plain, tree


def test_asarray_gives_numpy_views_of_the_bodies() -> None:
    padded, _, tree = arrays()
    shown = buffer_asarray(tree)
    shown.b.same[2, 0] = 5
    assert np.asarray(padded).tolist() == [[0], [0], [5]]
    assert type(shown.b.c) is np.ndarray
    assert shown.b.c.shape == (3, 2)
    assert shown.b.none is None
    assert buffer_asarray(tree[2]).a.tolist() == [5]


def test_shared_array_is_found_once() -> None:
    padded, plain, tree = arrays()
    assert [id(array) for array in buffer_arrays(tree)] == [id(padded), id(plain)]
    assert buffer_arrays({"x": 3, "y": plain}) == [plain]
    assert buffer_arrays(None) == []


def test_rotate_moves_each_array_once() -> None:
    padded, _, tree = arrays()
    padded[...] = [[1], [2], [3]]
    padded[3] = 4
    buffer_rotate(tree)
    # twice would carry the rows that the first rotation brought to the front
    assert np.asarray(padded[-1:4]).tolist() == [[3], [4], [2], [3], [4]]


def test_rotate_moves_an_array_of_which_views_come_first() -> None:
    padded = RotatingArray((3, 1), np.int32)
    tree = NamedArrayTuple(part=padded[1:], whole=padded, end=padded[2])
    assert [array.is_view for array in buffer_arrays(tree)] == [False]
    padded[3] = 4
    buffer_rotate(tree)
    assert np.asarray(padded)[0].tolist() == [4]


def test_close_lets_go_of_all() -> None:
    padded, plain, tree = arrays()
    buffer_close(tree)
    for array in (padded, plain):
        with pytest.raises(ClosedError, match=r"used after close\(\)"):
            np.asarray(array)
    buffer_close(tree)


def test_method_and_attributes_of_every_leaf() -> None:
    tree = NamedTuple(a=np.arange(6), b={"c": np.ones(4), "d": None})
    reshaped = buffer_method(tree, "reshape", 2, -1)
    assert buffer_get_attr(reshaped, "shape") == NamedTuple(a=(2, 3), b={"c": (2, 2), "d": None})
    kept = buffer_method(tree, "sum", keepdims=True)
    assert (kept.a.tolist(), kept.b["c"].tolist()) == ([15], [4])


class Leaf:
    value = 0


def test_set_attribute_reaches_every_leaf() -> None:
    leaves = [Leaf(), Leaf(), Leaf()]
    tree = NamedTuple(a=leaves[0], b=(leaves[1], None), c={"d": leaves[2]})
    buffer_set_attr(tree, "value", 7)
    assert [leaf.value for leaf in leaves] == [7, 7, 7]
    assert buffer_get_attr(tree, "value") == NamedTuple(a=7, b=(7, None), c={"d": 7})
