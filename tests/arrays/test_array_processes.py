from __future__ import annotations

import gc
import multiprocessing as mp
import multiprocessing.resource_sharer
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest
from open_descriptors import DESCRIPTORS, descriptors
from start_methods import METHODS, SENT_SPAWN_SOAKS, SPAWN_SOAKS

from parllel.arrays import (
    Array,
    ManagedMemoryArray,
    RotatingManagedMemoryArray,
    SharedMemoryArray,
    Storage,
)
from parllel.arrays.arena import Arena, aligned
from parllel.arrays.block import new_key
from parllel.arrays.kinds import array_class
from parllel.errors import RegistrationError

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(scope="module")
def started() -> None:
    """Start what stays for the life of this process once it is used, before descriptors are counted."""
    if not DESCRIPTORS.exists():
        pytest.skip("/proc lists descriptors")
    run("forkserver", gc.collect)
    run("spawn", gc.collect)


@pytest.fixture
def no_leak(started: None) -> Iterator[None]:
    before = descriptors()
    yield
    multiprocessing.resource_sharer.stop(timeout=5)
    assert descriptors() == before


def run(method: str, target: Any, *args: Any) -> None:
    process = mp.get_context(method).Process(target=target, args=args)
    process.start()
    end(process)


def end(process: Any) -> None:
    process.join(30)
    assert process.exitcode == 0
    process.close()


@contextmanager
def talking_to(method: str, target: Any, *args: Any) -> Iterator[Connection]:
    """Start a child with its end of a pipe, and wait for its end."""
    mine, theirs = mp.Pipe()
    with mine:
        process = mp.get_context(method).Process(target=target, args=(theirs, *args))
        process.start()
        theirs.close()
        yield mine
        end(process)


def receive(pipe: Connection) -> Any:
    assert pipe.poll(30), "the child does not answer"
    return pipe.recv()


def write_through(array: Array, view: Array, picked: Array) -> None:
    assert array[1:3] == view
    assert np.asarray(array)[0].tolist() == [1.0, 2.0, 3.0]
    array[array.last + 1] = 10.0
    view[0] = 20.0
    picked[...] = 30.0
    array[2, 2] = 40.0
    array.rotate()  # carries on in this process: rows 3 and 4 go to -1 and 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("storage", ["shared", "managed"])
@pytest.mark.few(3)
def test_child_writes_into_an_array_that_it_got_at_its_start(
    method: str, storage: Storage, no_leak: None
) -> None:
    array = array_class(storage, rotating=True)((4, 3), np.float32)
    array[0] = [1, 2, 3]
    run(method, write_through, array, array[1:3], array[[3, 2], [1, 1]])
    expected = [[0, 30, 0], [10] * 3, [20] * 3, [0, 30, 40], [0, 30, 0], [10] * 3]
    np.testing.assert_array_equal(np.asarray(array[-1:5]), expected)
    array.close()


def answer_rows(pipe: Connection, arrays: list[Array]) -> None:
    for number, array in enumerate(arrays):
        assert np.asarray(array).sum() == 0
        array[...] = number
    pipe.send([array.block.key for array in arrays])
    assert receive(pipe) == "written"
    pipe.send([np.asarray(array).ravel()[0].item() for array in arrays])


@pytest.mark.parametrize("method", SENT_SPAWN_SOAKS)
def test_tree_of_arrays_shares_one_arena_with_the_child(method: str, no_leak: None) -> None:
    """Three hundred arrays: more than a fork server passes descriptors."""
    arena = Arena(300 * aligned(24), "shared")
    arrays = [Array((2, 3), np.float32, arena=arena) for _ in range(300)]
    with talking_to(method, answer_rows, arrays) as pipe:
        assert receive(pipe) == [array.block.key for array in arrays]
        assert [np.asarray(array)[1, 2].item() for array in arrays] == list(range(300))
        for array in arrays:
            array[0, 0] = 7
        pipe.send("written")
        assert receive(pipe) == [7] * 300
    for array in arrays:
        array.close()


def write_what_arrives(pipe: Connection) -> None:
    while (message := receive(pipe)) is not None:
        array, view = message
        assert array[1] == view
        view[...] = 5
        array[-1] = np.asarray(array[0]) + 1
        pipe.send((array.block.key, view))
    pipe.close()


@pytest.mark.parametrize("method", SENT_SPAWN_SOAKS)
def test_managed_array_is_sent_to_a_running_process(method: str, no_leak: None) -> None:
    with talking_to(method, write_what_arrives) as pipe:
        for number in range(3):
            array = RotatingManagedMemoryArray((4, 3), np.float64)
            array[0] = number
            pipe.send((array, array[1]))
            key, view = receive(pipe)
            assert key == array.block.key
            assert view == array[1]  # the same place, over another mapping
            assert view.block is not array.block
            assert np.asarray(array[1]).tolist() == [5, 5, 5]
            assert np.asarray(array[-1]).tolist() == [number + 1] * 3
            view[...] = 6
            assert np.asarray(array[1]).tolist() == [6, 6, 6]
            array.close()
            view.close()
        pipe.send(None)


def test_shared_array_is_refused_by_a_pipe_and_the_pipe_goes_on(no_leak: None) -> None:
    with talking_to("fork", write_what_arrives) as pipe:
        array = SharedMemoryArray((4, 3), np.float32)
        with pytest.raises(RegistrationError, match='allocate it with storage="managed"'):
            pipe.send((array, array[1]))
        pipe.send(None)


@pytest.mark.parametrize("method", SENT_SPAWN_SOAKS)
def test_local_array_is_given_to_the_child_as_a_copy(method: str) -> None:
    array = array_class("local", rotating=True)((4, 3), np.float32)
    array[0] = [1, 2, 3]
    run(method, write_through, array, array[1:3], array[[3, 2], [1, 1]])
    assert np.asarray(array[-1:5]).sum() == 6


def outlive(pipe: Connection, array: Array) -> None:
    pipe.send("started")
    assert receive(pipe) == "closed"
    array[0] = 8
    pipe.send(np.asarray(array[...]).tolist())


@pytest.mark.parametrize("method", SENT_SPAWN_SOAKS)
def test_memory_stays_for_the_child_when_the_parent_closes(method: str) -> None:
    array = SharedMemoryArray((2, 2), np.float32)
    array[1] = 4
    seen = np.asarray(array)
    with talking_to(method, outlive, array) as pipe:
        assert receive(pipe) == "started"
        array.close()
        pipe.send("closed")
        assert receive(pipe) == [[8, 8], [4, 4]]
        assert seen.tolist() == [[8, 8], [4, 4]]


def send_keys(pipe: Connection) -> None:
    pipe.send([new_key() for _ in range(50)])


@pytest.mark.parametrize("method", SPAWN_SOAKS)
def test_keys_of_related_processes_never_meet(method: str) -> None:
    keys: list[int] = []
    for _ in range(2):  # two children and this process
        with talking_to(method, send_keys) as pipe:
            keys += receive(pipe)
    keys += [new_key() for _ in range(50)]
    assert len(set(keys)) == 150


def test_managed_array_survives_a_round_trip_in_one_process(no_leak: None) -> None:
    array = ManagedMemoryArray((4, 3), np.int64)
    array[...] = np.arange(12).reshape(4, 3)
    other = pickle.loads(pickle.dumps(array[[2, 0], 1:]))
    assert type(other) is ManagedMemoryArray
    assert other == array[[2, 0], 1:]
    other[...] = -1
    assert np.asarray(array).tolist() == [[0, -1, -1], [3, 4, 5], [6, -1, -1], [9, 10, 11]]
    del other
