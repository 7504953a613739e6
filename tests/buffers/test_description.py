"""What is said of a buffer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from parllel.buffers import Field, allocate, describe_arrays, insert_field, summarize_arrays
from parllel.buffers.tree import buffer_close
from parllel.errors import ClosedError
from parllel.types import BatchSpec

SPEC = BatchSpec(T=100, B=50)


def test_each_array_is_described_by_path() -> None:
    rules: Any = {"env.*": "managed"}
    tree = allocate(
        {
            "agent": {"action": Field(0, dtype=np.int64), "info": None},
            "env": {"observation": Field(np.zeros((4, 5)), padding=1), "flags": [True]},
        },
        SPEC,
        storage=rules,
    )
    tree = insert_field(tree, "agent.observation", tree.env.observation)
    described = describe_arrays(tree)
    observation = {
        "class": "RotatingManagedMemoryArray",
        "shape": [100, 50, 4, 5],
        "dtype": "float32",
        "padding": 1,
        "storage": "managed",
        "megabytes": 102 * 50 * 20 * 4 / 1e6,
    }
    assert described == {
        "agent.action": {
            "class": "Array",
            "shape": [100, 50],
            "dtype": "int64",
            "padding": 0,
            "storage": "local",
            "megabytes": 0.04,
        },
        "agent.observation": observation,
        "env.observation": {**observation, "same_as": "agent.observation"},
        "env.flags._0": {
            "class": "ManagedMemoryArray",
            "shape": [100, 50],
            "dtype": "bool",
            "padding": 0,
            "storage": "managed",
            "megabytes": 0.005,
        },
    }
    assert json.loads(json.dumps(described)) == described
    text = "buffers: 0.453 MB in 3 arrays (local 0.04 MB, managed 0.413 MB)"
    assert summarize_arrays(described) == text
    buffer_close(tree)
    with pytest.raises(ClosedError, match=r"used after close"):
        describe_arrays(tree)


def test_memory_counts_further_batches_sides_and_frames() -> None:
    example = {"a": Field(np.zeros(3), padding=1)}
    replay = describe_arrays(allocate(example, SPEC, batches=4))["a"]
    assert (replay["class"], replay["megabytes"]) == ("RotatingArray", 402 * 50 * 3 * 4 / 1e6)
    sides = describe_arrays(allocate(example, SPEC, switching=True))["a"]
    assert (sides["class"], sides["megabytes"]) == ("SwitchingRotatingArray", 204 * 50 * 12 / 1e6)
    stacks = Field(np.zeros((4, 30, 30), np.uint8), padding=1, frames=4)
    frames = describe_arrays(allocate({"a": stacks}, SPEC))["a"]
    assert (frames["class"], frames["shape"]) == ("LazyFramesArray", [100, 50, 4, 30, 30])
    # All frames once, and for each cell one stack and some bytes.
    assert frames["megabytes"] == pytest.approx((102 + 4 + 3) * 50 * 900 / 1e6, rel=0.01)


@pytest.mark.parametrize("switching", [False, True])
def test_what_was_asked_for_in_ints_of_numpy_is_json(switching: bool) -> None:
    field = Field(np.zeros((3, 2)), padding=np.int64(1))
    tree = allocate({"a": field}, SPEC, batches=np.int64(2), switching=switching)
    described = describe_arrays(tree)
    assert json.loads(json.dumps(described)) == described
    assert described["a"]["padding"] == 1
    frames = allocate({"a": Field(np.zeros((3, 2)), np.int64(1), frames=3)}, SPEC)
    assert json.loads(json.dumps(describe_arrays(frames)))["a"]["padding"] == 1


def test_numpy_arrays_and_scalars_are_described_too() -> None:
    described = describe_arrays({"a": np.zeros((2, 3), np.int8), "b": 1.5})
    assert described["a"]["class"] == "ndarray"
    assert described["a"]["megabytes"] == 6e-6
    assert (described["b"]["shape"], described["b"]["dtype"]) == ([], "float64")


def test_nothing_is_summarised() -> None:
    assert describe_arrays(None) == {}
    assert summarize_arrays({}) == "buffers: 0 MB in 0 arrays (none)"
