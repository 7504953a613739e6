"""Making, sharing and closing arrays of stacks that are stored frame by frame."""

from __future__ import annotations

import multiprocessing as mp
import multiprocessing.resource_sharer
import pickle
from typing import Any

import numpy as np
import pytest
from frame_streams import filled, stacks_of

from parllel.arrays import LazyFramesArray
from parllel.arrays.arena import aligned
from parllel.errors import ClosedError, RegistrationError

STORAGES = ("local", "shared", "managed")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"shape": (4, 3)}, r"shape: expected \(T, B, k, \*frame\)"),
        ({"shape": (4, 3, 129)}, "with k of 1 to 128"),
        ({"shape": (4, 3, 0)}, "every dimension must be an int >= 1"),
        ({"dtype": object}, "object arrays cannot be shared"),
        ({"padding": 5}, "padding: expected at most 4, .*, got 5"),
        ({"padding": -1}, "padding: expected at least 0"),
        ({"full_size": 6}, "a multiple of 4, the rows"),
        ({"storage": "disk"}, "storage: expected one of"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=f"LazyFramesArray: .*{match}"):
        LazyFramesArray(**{"shape": (4, 3, 2), "dtype": np.uint8, **arguments})


@pytest.mark.parametrize("storage", STORAGES)
def test_a_pong_batch_takes_less_than_two_sevenths(storage: Any) -> None:
    T, B, k, frame = 64, 16, 4, (84, 84)
    array = LazyFramesArray((T, B, k, *frame), np.uint8, storage=storage)
    assert array.storage == storage
    stored = T * B * k * 84 * 84  # padding not even counted
    assert array.block.nbytes <= stored / 3.5
    assert array.block.arena.nbytes <= aligned(array.block.nbytes)
    array.close()


def test_reading_is_a_copy_and_says_so() -> None:
    array, stacks = filled()
    np.asarray(array)[...] = 0
    np.testing.assert_array_equal(array, stacks[:4])
    assert np.asarray(array, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        np.array(array, copy=False)


def write_through(array: LazyFramesArray, view: LazyFramesArray, stacks: Any) -> None:
    assert array[1:3] == view
    np.testing.assert_array_equal(array[0], stacks[0])
    view[...] = stacks[1:3]
    array[3] = stacks[3]
    array[array.last + 1] = stacks[4]
    np.testing.assert_array_equal(array, stacks[:4])


@pytest.mark.parametrize("storage", ["shared", "managed"])
def test_child_writes_into_an_array_that_it_got_at_its_start(storage: Any) -> None:
    stacks = stacks_of(5, 2, 4, (3,))
    array = LazyFramesArray((4, 2, 4, 3), np.uint8, storage=storage)
    array[0] = stacks[0]
    arguments = (array, array[1:3], stacks)
    process = mp.get_context("forkserver").Process(target=write_through, args=arguments)
    process.start()
    process.join(30)
    assert process.exitcode == 0
    process.close()
    np.testing.assert_array_equal(array, stacks[:4])
    np.testing.assert_array_equal(array.staged(), stacks[4])
    array.rotate()
    np.testing.assert_array_equal(array[0], stacks[4])
    array.close()


@pytest.mark.parametrize("storage", ["local", "managed"])
def test_survives_a_round_trip(storage: Any) -> None:
    array, stacks = filled((4, 3, 3, 2), storage=storage)
    other = pickle.loads(pickle.dumps(array))
    view = pickle.loads(pickle.dumps(array[[2, 0], 1:]))
    assert type(other) is LazyFramesArray
    np.testing.assert_array_equal(other, stacks[:4])
    np.testing.assert_array_equal(view, stacks[[2, 0], 1:])
    assert (other == array) is (storage == "managed")
    other[0] = 9
    assert (np.asarray(array[0]) == 9).all() == (storage == "managed")
    other.close()
    view.close()
    array.close()
    multiprocessing.resource_sharer.stop(timeout=5)


def test_shared_memory_is_refused_by_a_pipe() -> None:
    array = LazyFramesArray((4, 3, 2), np.uint8, storage="shared")
    with pytest.raises(RegistrationError, match="only when the process starts"):
        pickle.dumps(array)
    array.close()


def test_staged_rows_count_as_handed_out() -> None:
    array, _ = filled()
    read = np.asarray(array[1])
    assert not array.block.handed_out
    staged = array.staged(slice(0, 1))
    part = staged[0, 1:]
    del staged
    assert array.block.handed_out
    del part, read
    assert not array.block.handed_out


def test_close_ends_use_and_keeps_what_was_handed_out() -> None:
    array, stacks = filled()
    view, staged, row = array[1:], array.staged(), array.writers(0, slice(0, 3))
    array.close()
    array.close()
    np.testing.assert_array_equal(staged, stacks[4])
    for use in (
        lambda: np.asarray(view),
        lambda: view.gather([0], [0]),
        lambda: array.staged(),
        lambda: array.rotate(),
        lambda: row.__setitem__(0, 0),
        lambda: array.__setitem__(0, 0),
    ):
        with pytest.raises(ClosedError, match=r"after close\(\)"):
            use()
