"""Names and paths in trees, against expectations written by hand."""

from __future__ import annotations

import typing
from collections import UserDict
from typing import Any

import numpy as np
import pytest

from parllel.arrays import Array
from parllel.buffers import NamedArrayTuple, NamedTuple
from parllel.buffers.paths import dotted, field_at, leaf_paths, part_at


class Point(typing.NamedTuple):
    x: Any
    y: Any


TREE = NamedTuple(a=1, b={"x": 2, "y": (3, [4, None])}, c=None, d=UserDict(z=Point(5, 6)))


def test_paths_lead_back_to_their_leaves() -> None:
    found = {dotted(path): leaf for path, leaf in leaf_paths(TREE)}
    assert found == {"a": 1, "b.x": 2, "b.y._0": 3, "b.y._1._0": 4, "d.z._0": 5, "d.z._1": 6}
    for path, leaf in leaf_paths(TREE):
        assert part_at(TREE, path) == field_at(TREE, dotted(path)) == leaf
    assert part_at(TREE, ()) is field_at(TREE, "") is TREE
    assert dotted(("x", "y"), "b") == "b.x.y"


def test_items_of_declared_classes_have_their_own_names_too() -> None:
    assert part_at(TREE, ("d", "z", "y")) == part_at(TREE, ("d", "z", "_1")) == 6


def test_fields_of_buffers_are_found_as_they_are() -> None:
    array = Array((4, 2), np.float32)
    tree = NamedArrayTuple(env=NamedArrayTuple(reward=array, info=None))
    assert field_at(tree, "env.reward") is array
    assert field_at(tree, "env.info") is None
    assert part_at(tree[1], ("env", "reward")) == array[1]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("e", r"no field 'e': 'e' is not one of \['a', 'b', 'c', 'd'\]"),
        ("b.y._1.x", r"no field 'b\.y\._1\.x': 'x' is not one of \['_0', '_1'\]"),
        ("b.y._2", r"'_2' is not one of \['_0', '_1'\]"),
        ("b.y._x", r"'_x' is not one of \['_0', '_1'\]"),
        ("a.x", r"no field 'a\.x': 'x' is not in 1"),
        ("c.x", r"'x' is not in None"),
    ],
)
def test_missing_parts_are_named_with_those_that_are_there(path: str, text: str) -> None:
    with pytest.raises(KeyError, match=text):
        part_at(TREE, tuple(path.split(".")))
    with pytest.raises(ValueError, match=text):
        field_at(TREE, path)
