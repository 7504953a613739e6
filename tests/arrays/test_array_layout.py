from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

from parllel.arrays import (
    Array,
    ManagedMemoryArray,
    RotatingArray,
    RotatingManagedMemoryArray,
    RotatingSharedMemoryArray,
    SharedMemoryArray,
    Storage,
)
from parllel.arrays.arena import STORAGES, Arena, aligned
from parllel.arrays.block import Block
from parllel.arrays.kinds import array_class
from parllel.errors import RegistrationError

CLASSES: list[tuple[type[Array], Storage, bool]] = [
    (Array, "local", False),
    (RotatingArray, "local", True),
    (SharedMemoryArray, "shared", False),
    (RotatingSharedMemoryArray, "shared", True),
    (ManagedMemoryArray, "managed", False),
    (RotatingManagedMemoryArray, "managed", True),
]


@pytest.mark.parametrize(("cls", "storage", "rotating"), CLASSES)
def test_classes_are_the_pairs_of_storage_and_layout(
    cls: type[Array], storage: Storage, rotating: bool
) -> None:
    assert array_class(storage, rotating=rotating) is cls
    array = cls((4, 3), np.float32)
    assert array.storage == storage
    assert array.padding == int(rotating)
    assert array.dtype == np.float32
    assert (array.shape, array.ndim, array.size, array.nbytes) == ((4, 3), 2, 12, 48)
    assert array.full_size == 4
    assert not np.asarray(array).any()


def test_unknown_storage_is_refused() -> None:
    with pytest.raises(ValueError, match=r"storage: expected one of .*got 'disk'"):
        array_class("disk", rotating=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"storage: expected one of .*got 'disk'"):
        Arena(8, "disk")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nbytes: expected at least 1, got 0"):
        Arena(0, "local")


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((), {}, r"shape: expected a tuple of at least one dimension, got \(\)"),
        (5, {}, "shape: expected a tuple of at least one dimension, got 5"),
        ([4, 3], {}, "shape: expected a tuple"),
        ((4, 0), {}, r"shape: every dimension must be an int >= 1, got \(4, 0\)"),
        ((-4,), {}, "shape: every dimension must be an int >= 1"),
        ((4.0, 3), {}, "shape: every dimension must be an int >= 1"),
        ((4, 3), {"dtype": object}, "dtype: object arrays cannot be shared, got object"),
        ((4, 3), {"dtype": [("a", "O"), ("b", "i4")]}, "dtype: object arrays cannot be shared"),
        ((4, 3), {"padding": -1}, "padding: expected at least 0, got -1"),
        (
            (4, 3),
            {"padding": 5},
            "padding: expected at most 4, the number of rows in the body, got 5",
        ),
        ((4, 3), {"padding": 1.0}, r"padding: expected an int, got 1\.0"),
        ((4, 3), {"full_size": "8"}, "full_size: expected an int, got '8'"),
        ((4, 3), {"full_size": 6}, "full_size: expected a multiple of 4, the rows .*got 6"),
        ((4, 3), {"full_size": 0}, "full_size: expected a multiple of 4, the rows"),
        ((4, 3), {"full_size": -4}, "full_size: expected a multiple of 4, the rows"),
    ],
)
def test_wrong_layout_names_the_argument(shape: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"RotatingArray: {message}"):
        RotatingArray(shape, **{"dtype": np.float32, **options})


@pytest.mark.parametrize("cls", [Array, SharedMemoryArray, ManagedMemoryArray])
def test_only_rotating_classes_have_padding(cls: type[Array]) -> None:
    with pytest.raises(ValueError, match=f"{cls.__name__}: padding: expected 0, got 1"):
        cls((4, 3), np.float32, padding=1)
    assert cls((4, 3), np.float32, padding=0).padding == 0


def test_padding_may_be_as_long_as_the_body_or_absent() -> None:
    assert RotatingArray((4, 3), np.float32, padding=4).padding == 4
    assert RotatingArray((4, 3), np.float32, padding=0).padding == 0
    assert RotatingArray((4, 3), np.float32, padding=2)[:].padding == 0


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "float16", "float64", "complex64", "S5", "M8[s]", "f4,i8"]
)
def test_any_dtype_but_object(dtype: str) -> None:
    array = RotatingSharedMemoryArray((4, 3), np.dtype(dtype))
    value = np.ones((4, 3), np.int64).astype(dtype)
    array[...] = value
    assert np.asarray(array).dtype == np.dtype(dtype)
    np.testing.assert_array_equal(np.asarray(array), value)


@pytest.mark.parametrize("storage", STORAGES)
def test_one_arena_serves_many_arrays(storage: Storage) -> None:
    layouts: list[tuple[tuple[int, ...], str]] = [((3,), "u1"), ((2, 5), "f8"), ((4, 1, 7), "f4")]
    needs = [aligned(math.prod(shape) * np.dtype(kind).itemsize) for shape, kind in layouts]
    arena = Arena(sum(needs), storage)
    arrays = [Array(shape, kind, arena=arena) for shape, kind in layouts]
    for number, array in enumerate(arrays, start=1):
        assert array.storage == storage
        assert np.asarray(array).ctypes.data % 64 == 0
        array[...] = number
    for number, array in enumerate(arrays, start=1):
        assert (np.asarray(array) == number).all()
    with pytest.raises(ValueError, match="arena: 1 bytes requested, but only 0 of"):
        Array((1,), "u1", arena=arena)


def test_pieces_are_whole_cache_lines() -> None:
    assert [aligned(n) for n in (0, 1, 63, 64, 65)] == [0, 64, 64, 64, 128]


def test_copy_of_a_local_array_is_another_buffer() -> None:
    array = RotatingArray((4, 3), np.int64, full_size=8)
    array[...] = np.arange(12).reshape(4, 3)
    array.rotate()
    array[-1] = 9
    view, picked = array[1:], array[[0, 1]]
    group = (array, view, picked)
    for duplicate in (pickle.loads(pickle.dumps(group)), copy.deepcopy(group)):
        other, other_view, other_picked = duplicate
        np.testing.assert_array_equal(np.asarray(other[-1:]), np.asarray(array[-1:]))
        assert other != array
        assert other_view == other[1:]
        assert other_picked == other[[0, 1]]
        other_view[...] = 5
        assert (np.asarray(other[1:]) == 5).all()
        assert not np.asarray(array).any()
        other[4] = 3
        other.rotate()
        assert np.asarray(other)[0].tolist() == [3, 3, 3]


@pytest.mark.parametrize("target", [lambda a: a, lambda a: a[0], lambda a: a[[0, 1]], Block])
def test_shared_memory_is_refused_when_no_process_starts(target: Any) -> None:
    array = SharedMemoryArray((4, 3), np.float32)
    what = array.block if target is Block else target(array)
    with pytest.raises(RegistrationError, match='allocate it with storage="managed"'):
        pickle.dumps(what)
    with pytest.raises(RegistrationError, match="only when the process starts"):
        copy.deepcopy(what)


@pytest.mark.parametrize(("cls", "storage", "rotating"), CLASSES)
def test_move_to_another_arena_keeps_content_views_and_identity(
    cls: type[Array], storage: Storage, rotating: bool
) -> None:
    array = cls((4, 3), np.int64, full_size=8)
    array.full[...] = np.arange(24).reshape(8, 3)
    array.rotate()
    view, picked, before = array[1:3], array[[3, 0]], np.asarray(array).copy()
    view[0] = before[1]  # caches
    array[0, 0] = before[0, 0]
    array.block.move_to(Arena(aligned(array.block.nbytes), "managed"))
    assert array.storage == "managed"
    np.testing.assert_array_equal(np.asarray(array), before)
    np.testing.assert_array_equal(np.asarray(picked), before[[3, 0]])
    view[0], array[0, 0] = -1, -2
    assert np.asarray(array)[1].tolist() == [-1, -1, -1]
    assert int(np.asarray(array)[0, 0]) == -2
    assert view == array[1:3]
