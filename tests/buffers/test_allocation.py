"""Allocation: which Array each element of a buffer gets."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from parllel.arrays import Array, ManagedMemoryArray, RotatingArray, SharedMemoryArray
from parllel.buffers import (
    AgentSamples,
    EnvSamples,
    Field,
    NamedArrayTuple,
    NamedTuple,
    Samples,
    add_fields,
    allocate,
    buffer_leaves,
    insert_field,
)
from parllel.errors import InsufficientMemoryError
from parllel.types import BatchSpec

SPEC = BatchSpec(T=5, B=3)


def test_leaf_becomes_zeroed_rows_of_the_examples_cells() -> None:
    array = allocate(np.ones((2, 4), np.uint8), SPEC)
    assert type(array) is Array
    assert array.shape == (5, 3, 2, 4)
    assert array.dtype == np.uint8
    assert not np.asarray(array).any()
    array[4, 2] = 7
    assert np.asarray(array).sum() == 56


@pytest.mark.parametrize(
    ("example", "stored"),
    [
        (np.float64(1), np.float32),
        (np.zeros(3, np.float64), np.float32),
        (1.0, np.float32),
        (1, np.int64),
        (np.int64(1), np.int64),
        (np.zeros(2, np.float32), np.float32),
        (np.float16(1), np.float16),
        (np.int8(1), np.int8),
        (np.uint64(1), np.uint64),
        (True, np.bool_),
        (np.complex128(1), np.complex128),
        (Field(np.int64(1), dtype=np.int64), np.int64),
        (Field(np.zeros(2), dtype=np.float64), np.float64),
        (Field(1, dtype=np.float16), np.float16),
    ],
)
def test_wide_numbers_are_narrowed_unless_told_otherwise(example: Any, stored: Any) -> None:
    assert allocate(example, SPEC).dtype == np.dtype(stored)


@pytest.mark.parametrize("feature", [(), (1,), (1, 1), (3, 1), (1, 3)])
def test_dimensions_of_one_are_kept(feature: tuple[int, ...]) -> None:
    assert allocate(np.zeros(feature), SPEC).shape == (5, 3, *feature)


def test_nodes_become_named_array_tuples() -> None:
    tree = allocate({"image": np.zeros(2), "arms": (1.0, [True, None]), "3": NamedTuple(x=1)}, SPEC)
    assert type(tree) is NamedArrayTuple
    assert [(path, leaf.shape, leaf.dtype.str[1:]) for path, leaf in buffer_leaves(tree)] == [
        ("image", (5, 3, 2), "f4"),
        ("arms._0", (5, 3), "f4"),
        ("arms._1._0", (5, 3), "b1"),
        ("3.x", (5, 3), "i8"),
    ]
    assert tree.arms._1._1 is None
    assert allocate(None, SPEC) is None
    tree[2, 1] = {"image": [1, 2], "arms": (3, (True, None)), "3": {"x": 4}}
    assert np.asarray(tree.image)[2, 1].tolist() == [1, 2]


def test_samples_stay_samples() -> None:
    example = Samples(
        agent=AgentSamples(action=1, agent_info=NamedArrayTuple(value=Field(0.0, padding=1))),
        env=EnvSamples(
            observation=Field(np.zeros(2), padding=1),
            reward=0.0,
            terminated=False,
            truncated=False,
            done=False,
            env_info=None,
        ),
    )
    samples = allocate(example, SPEC)
    assert [type(node) for node in (samples, *samples)] == [Samples, AgentSamples, EnvSamples]
    assert samples.agent.agent_info.value.padding == 1
    assert samples.env.observation.padding == 1
    assert samples.env.reward.padding == 0
    assert samples.env.env_info is None


def test_padding_reaches_nested_fields_and_yields_to_the_field() -> None:
    tree = allocate({"a": {"b": 1.0, "c": Field(1.0, padding=2)}, "d": Field(1.0)}, SPEC, padding=1)
    assert type(tree.a.b) is RotatingArray
    assert (tree.a.b.padding, tree.a.c.padding, tree.d.padding) == (1, 2, 0)
    tree.a.b[5] = 1
    tree.a.c[6] = 1
    assert np.asarray(tree.a.c[-2:7])[:, 0].tolist() == [0] * 8 + [1]


def test_buffer_as_example_gives_one_of_the_same_kind() -> None:
    first = allocate({"a": Field(np.zeros(2), padding=1, dtype=np.float64), "b": 1}, SPEC)
    second = allocate(first, BatchSpec(7, 2))
    assert (second.a.shape, second.a.dtype, second.a.padding) == ((7, 2, 2), np.dtype("f8"), 1)
    assert (second.b.shape, second.b.dtype, second.b.padding) == ((7, 2), np.dtype("i8"), 0)
    second.a[0] = 1
    assert not np.asarray(first.a).any()


def test_room_for_several_batches_is_a_window() -> None:
    tree = allocate({"a": Field(0.0, padding=1), "b": 0}, SPEC, batches=4)
    for number in range(4):
        tree.b[...] = number
        assert tree.a.shape == (5, 3)
        tree.b.rotate()
    assert tree.a.full_size == 20
    assert np.asarray(tree.b.full)[:, 0].tolist() == np.repeat(range(4), 5).tolist()


def test_storage_for_all() -> None:
    for storage, kind in (("shared", SharedMemoryArray), ("managed", ManagedMemoryArray)):
        tree = allocate({"a": 1.0, "b": {"c": 1}}, SPEC, storage=storage)  # type: ignore[arg-type]
        assert type(tree.a) is type(tree.b.c) is kind
        assert tree.a.storage == storage


def test_storage_by_path_the_last_fitting_rule_wins() -> None:
    rules: Any = {"env.*": "shared", "*.observation": "managed", "env.info.[ab]": "local"}
    example = {
        "env": {"reward": 0.0, "observation": 0.0, "info": {"a": 0, "b": 0, "c": 0}},
        "agent": {"action": 0, "observation": 0.0},
    }
    tree = allocate(example, SPEC, storage=rules)
    assert {path: leaf.storage for path, leaf in buffer_leaves(tree)} == {
        "env.reward": "shared",
        "env.observation": "managed",
        "env.info.a": "local",
        "env.info.b": "local",
        "env.info.c": "shared",
        "agent.action": "local",
        "agent.observation": "managed",
    }


def test_rules_see_the_path_of_the_whole_buffer() -> None:
    tree = allocate(
        {"value": 0.0}, SPEC, storage={"agent.agent_info.*": "managed"}, at="agent.agent_info"
    )
    assert tree.value.storage == "managed"


def test_tree_costs_one_descriptor_per_storage() -> None:
    before = len(os.listdir("/proc/self/fd"))
    example = {f"field_{i}": np.zeros(i + 1) for i in range(50)}
    tree = allocate(example, SPEC, storage={"*": "managed", "*_1": "shared"})
    grown = len(os.listdir("/proc/self/fd")) - before
    # one each for the arena and, in mmap, its copy
    assert grown <= 4
    for i, array in enumerate(tree):
        array[...] = i
    for i, array in enumerate(tree):
        assert np.unique(np.asarray(array)).tolist() == [i]


@pytest.mark.parametrize(
    ("example", "kwargs", "text"),
    [
        ({"a": {"b": "text"}}, {}, r"a\.b: expected an example of numbers or booleans, got 'text'"),
        ({"a": {"b": object()}}, {}, r"a\.b: expected an example of numbers or booleans"),
        ({"a": np.datetime64("2020-01-01")}, {}, "^a: expected an example of numbers or booleans"),
        (object(), {}, "^buffer: expected an example of numbers or booleans"),
        (
            {"a": {"b": Field(1.0, padding=6)}},
            {},
            r"a\.b: .*padding: expected at most 5, .*, got 6",
        ),
        ({"a": Field(1.0, padding=-1)}, {}, "^a: .*padding: expected at least 0, got -1"),
        ({"a": Field(1.0, padding=0.5)}, {}, r"^a: padding: expected an int, got 0\.5"),
        ({"a": {"b": Field(1.0, dtype="flot32")}}, {}, r"^a\.b: dtype: data type 'flot32' not"),
        ({1: 1.0, "1": 1.0}, {}, "^1: two fields have this path; rename a key"),
        ({"a.b": 1.0, "a": {"b": 1.0}}, {}, r"^a\.b: two fields have this path; rename a key"),
        ({"a": {"_values": 1.0}}, {}, r"^a\._values: a field cannot have the name '_values'"),
        ({"a": 1.0}, {"batches": 0}, "^batches: expected an int of at least 1, got 0"),
        ({"a": 1.0}, {"batches": 1.5}, r"^batches: expected an int of at least 1, got 1\.5"),
        ({"a": {"b": np.zeros((2, 0))}}, {}, r"a\.b: .*every dimension must be an int >= 1"),
        ({"a": 1.0}, {"storage": "shed"}, "^storage: the default: expected one of .*got 'shed'"),
    ],
)
def test_what_cannot_be_allocated_is_named_by_path(example: Any, kwargs: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        allocate(example, SPEC, **kwargs)


def test_lack_of_memory_is_told_before_anything_is_allocated() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InsufficientMemoryError, match=r"could not allocate [\d,]+ bytes with"):
        allocate({"a": np.zeros(1024)}, BatchSpec(1 << 20, 1 << 14), storage="managed")
    assert len(os.listdir("/proc/self/fd")) == before


# ---------------------------------------------------------------------- adding fields


def test_added_fields_share_the_old_arrays() -> None:
    tree = allocate({"agent": {"action": 1}, "env": {"reward": 0.0}}, SPEC)
    more = add_fields(
        tree,
        {
            "agent.advantage": Field(0.0),
            "agent.extra": {"x": 1, "y": None},
            "top": Field(1, padding=1),
        },
        SPEC,
        storage={"agent.*": "managed"},
    )
    assert more.agent.action is tree.agent.action
    assert more.env.reward is tree.env.reward
    assert more.agent._fields == ("action", "advantage", "extra")
    assert (more.agent.advantage.storage, more.agent.extra.x.storage) == ("managed", "managed")
    assert (more.top.storage, more.top.padding) == ("local", 1)
    assert tree._fields == ("agent", "env")
    assert tree.agent._fields == ("action",)


def test_field_is_inserted_where_there_was_none() -> None:
    tree = allocate({"agent": {"action": 1, "info": None}}, SPEC)
    array = allocate(0.0, SPEC)
    assert insert_field(tree, "agent.info", array).agent.info is array
    with pytest.raises(ValueError, match="'action' already exists; every field has one writer"):
        insert_field(tree, "agent.action", array)
    with pytest.raises(
        ValueError, match=r"cannot add 'info\.x': there is no node 'info' among .*'action', 'info'"
    ):
        insert_field(tree, "agent.info.x", array)
    with pytest.raises(ValueError, match=r"cannot add 'env\.x': there is no node 'env'"):
        insert_field(tree, "env.x", array)


@pytest.mark.parametrize("storage", ["local", "managed"])
def test_a_field_of_the_current_batch_only_takes_the_memory_of_one(storage: Any) -> None:
    examples = {
        "all": Field(np.zeros(1000), padding=1),
        "one": Field(np.zeros(1000), padding=1, current_batch_only=True),
    }
    tree = allocate(examples, SPEC, batches=50, storage=storage)
    assert tree.all.full_size == 250
    assert tree.one.full_size == 5
    assert tree.one.block.arena is tree.all.block.arena
    assert tree.all.block.arena.nbytes < 1.1 * tree.all.block.nbytes
    for number in range(3):
        tree.one[2] = number
        tree.all[2] = number
        tree.one.rotate()
        tree.all.rotate()
    # It is always the same memory, while the other goes on to the next batch.
    assert (tree.one.block.window_number, tree.all.block.window_number) == (0, 3)
    assert np.asarray(tree.one)[2, 0, 0] == 2
    assert np.asarray(tree.all.full)[2::5][:3, 0, 0].tolist() == [0, 1, 2]


def test_both_sides_of_switching_arrays_hold_a_field_of_the_current_batch() -> None:
    tree = allocate({"one": Field(0.0, current_batch_only=True)}, SPEC, switching=True)
    assert tree.one.n_sides == 2
