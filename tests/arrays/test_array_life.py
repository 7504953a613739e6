from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from open_descriptors import DESCRIPTORS, descriptors

from parllel.arrays import (
    Array,
    ManagedMemoryArray,
    RotatingArray,
    SharedMemoryArray,
    Storage,
    arena,
)
from parllel.arrays.arena import STORAGES, Arena, available_memory
from parllel.arrays.kinds import array_class
from parllel.errors import ClosedError, InsufficientMemoryError

PEBIBYTE = 1 << 50

needs_proc = pytest.mark.skipif(not DESCRIPTORS.exists(), reason="/proc lists descriptors")


@pytest.fixture
def no_leak() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() == before


@pytest.mark.parametrize("storage", STORAGES)
def test_memory_that_no_machine_has_is_refused(storage: Storage) -> None:
    before = descriptors() if DESCRIPTORS.exists() else {}
    pattern = r"could not allocate 1,125,899,906,842,\d{3} bytes with ([\d,]+ bytes|an unknown) "
    with pytest.raises(InsufficientMemoryError, match=pattern):
        array_class(storage, rotating=False)((PEBIBYTE,), np.uint8)
    if DESCRIPTORS.exists():
        assert descriptors() == before


def test_size_beyond_64_bits_is_lack_of_memory_too() -> None:
    with pytest.raises(
        InsufficientMemoryError, match="could not allocate 18,446,744,073,709,551,616 bytes"
    ):
        Array((1 << 32, 1 << 32), np.uint8)
    with pytest.raises(MemoryError, match="could not allocate 1,267,650"):
        SharedMemoryArray((1 << 50, 1 << 50), np.uint8)


@needs_proc
@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="claims pages another way")
def test_memory_that_runs_out_while_it_is_claimed_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, no_leak: None
) -> None:
    def refuse(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(
        InsufficientMemoryError, match=r"could not allocate 64 bytes .*No space left"
    ):
        SharedMemoryArray((4, 3), np.float32)


def test_what_the_machine_has_is_found_out() -> None:
    available = available_memory()
    if not Path("/proc/meminfo").exists():
        assert available is None
        return
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert available is not None
    assert 0 < available <= total


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("memory_", "memory.")).write_text(text)


STAT_2 = "anon 700\nfile 290\nshmem 90\ninactive_file 120\nactive_file 80\nslab_reclaimable 5\n"
STAT_1 = "cache 9\nactive_file 1\ntotal_cache 290\ntotal_inactive_file 120\ntotal_active_file 80\n"


def test_files_in_memory_do_not_count_as_used(tmp_path: Path) -> None:
    write(tmp_path, memory_max="max\n", memory_current="5\n")
    write(tmp_path / "job", memory_max="1000\n", memory_current="990\n", memory_stat=STAT_2)
    write(tmp_path / "job" / "mine", memory_max="5000\n", memory_current="100\n")
    write(tmp_path / "job" / "other", memory_max="1\n", memory_current="1\n")
    write(tmp_path / "full", memory_max="1000\n", memory_current="1300\n", memory_stat=STAT_2)
    process = tmp_path / "process"
    process.write_text("0::/job/mine\n")
    assert sorted(arena.cgroup_headroom(tmp_path, process)) == [210, 4900]
    process.write_text("0::/full\n")
    assert arena.cgroup_headroom(tmp_path, process) == [0]


def test_memory_groups_of_version_1(tmp_path: Path) -> None:
    limits = {"memory_limit_in_bytes": "1000\n", "memory_usage_in_bytes": "990\n"}
    write(tmp_path / "memory", memory_limit_in_bytes="9000\n", memory_usage_in_bytes="2000\n")
    write(tmp_path / "memory" / "box", **limits, memory_stat=STAT_1)
    write(tmp_path / "memory" / "elsewhere", **limits)
    process = tmp_path / "process"
    process.write_text("9:name=systemd:/elsewhere\n4:hugetlb,memory:/box\n0::/\n")
    assert sorted(arena.cgroup_headroom(tmp_path, process)) == [210, 7000]


def test_no_memory_groups(tmp_path: Path) -> None:
    assert arena.cgroup_headroom(tmp_path / "none", tmp_path / "nothing") == []
    write(tmp_path, memory_max="what\n", memory_current="is\n", process="this\n")
    assert arena.cgroup_headroom(tmp_path, tmp_path / "process") == []


def test_size_beyond_the_address_space_is_lack_of_memory_where_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arena, "available_memory", lambda: None)
    for storage in STORAGES:
        with pytest.raises(InsufficientMemoryError, match="with an unknown amount available: "):
            array_class(storage, rotating=False)((1 << 32, 1 << 32), np.uint8)


def test_unknown_available_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(nbytes: int) -> Any:
        raise MemoryError("refused")

    monkeypatch.setattr(arena, "available_memory", lambda: None)
    monkeypatch.setattr(arena, "_local_bytes", refuse)
    with pytest.raises(InsufficientMemoryError, match="with an unknown amount available: refused"):
        Array((4,), np.float32)


@pytest.mark.parametrize("storage", ["shared", "managed"])
def test_shared_memory_is_claimed_and_zero(storage: Storage) -> None:
    piece = Arena(1 << 20, storage)
    assert os.fstat(piece.fd).st_blocks * 512 >= 1 << 20
    assert not np.frombuffer(piece.buffer, np.uint8).any()
    piece.close()


@needs_proc
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("end", ["close", "forget", "close twice", "close a view"])
def test_descriptors_are_given_back(storage: Storage, end: str, no_leak: None) -> None:
    before = descriptors()
    array = array_class(storage, rotating=True)((4, 3), np.float32)
    view, cached = array[0], array[1:]
    cached[0] = 1
    if storage != "local":
        assert len(descriptors()) > len(before)
    if end.startswith("close"):
        (view if end == "close a view" else array).close()
    if end == "close twice":
        array.close()
        view.close()
    del array, view, cached


@needs_proc
def test_arena_costs_as_much_for_many_arrays_as_for_one() -> None:
    counts = []
    for number in (1, 50):
        before = len(descriptors())
        piece = Arena(64 * number, "shared")
        arrays = [Array((4,), np.float32, arena=piece) for _ in range(number)]
        counts.append(len(descriptors()) - before)
        for array in arrays:
            array.close()
        del arrays, array, piece
        assert len(descriptors()) == before
    assert counts[0] == counts[1]


@needs_proc
def test_nothing_with_a_name_is_made(tmp_path: Path) -> None:
    shm = Path("/dev/shm")
    before = set(os.listdir(shm)) if shm.exists() else set()
    array = ManagedMemoryArray((4, 3), np.float32)
    assert (set(os.listdir(shm)) if shm.exists() else set()) == before
    array.close()


def test_portable_fallback_is_an_unlinked_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    array = SharedMemoryArray((4, 3), np.float32)
    array[...] = 3
    assert (np.asarray(array) == 3).all()
    assert os.listdir(tmp_path) == []
    assert os.fstat(array.block.arena.fd).st_nlink == 0


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    "use",
    [
        lambda a, v: np.asarray(a),
        lambda a, v: np.asarray(v),
        lambda a, v: a.__setitem__((0, 0), 1),
        lambda a, v: a.__setitem__(0, 1),
        lambda a, v: a.__setitem__(-1, 1),
        lambda a, v: a.__setitem__([0, 1], 1),
        lambda a, v: v.__setitem__(0, 1),
        lambda a, v: v.__setitem__(..., 1),
        lambda a, v: a.__setitem__(0, v),
        lambda a, v: a.rotate(),
        lambda a, v: a.reset(),
        lambda a, v: a.storage,
        lambda a, v: a.__reduce__()[1][1].__getstate__(),
    ],
)
def test_use_after_close_raises(storage: Storage, use: Any) -> None:
    array = array_class(storage, rotating=True)((4, 3), np.float32)
    view = array[1:3]
    view[0] = array[0, 0] = 5  # both have cached what they write to
    array.close()
    array.close()
    with pytest.raises(ClosedError, match=r"the array was used after close\(\)"):
        use(array, view)


@pytest.mark.parametrize("storage", STORAGES)
def test_numpy_view_outlives_its_array(storage: Storage) -> None:
    array = array_class(storage, rotating=True)((4, 3), np.float32)
    array[...] = 5
    seen = np.asarray(array)
    array.close()
    del array
    gc.collect()
    assert (seen == 5).all()
    seen[0] = 6
    assert seen[:2].tolist() == [[6, 6, 6], [5, 5, 5]]


@needs_proc
def test_arena_is_freed_with_the_last_view_that_was_handed_out(no_leak: None) -> None:
    array = SharedMemoryArray((4, 3), np.float32)
    seen = np.asarray(array)
    array.close()
    del array
    assert seen.sum() == 0
    del seen


DERIVED: list[Any] = [
    lambda seen: seen,
    lambda seen: seen[1:],
    lambda seen: seen[1:][:1].T,
    lambda seen: seen.reshape(-1)[::2],
    lambda seen: seen.view(np.uint32),
    lambda seen: memoryview(seen),
    lambda seen: np.frombuffer(memoryview(seen), np.float32),
    lambda seen: np.lib.stride_tricks.sliding_window_view(seen, 2, axis=0),
    lambda seen: iter(seen),
]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("derive", DERIVED)
def test_handed_out_while_any_derived_view_lives(storage: Storage, derive: Any) -> None:
    array = array_class(storage, rotating=True)((4, 3), np.float32)
    block = array.block
    assert not block.handed_out
    kept = derive(np.asarray(array))
    gc.collect()
    assert block.handed_out
    del kept
    gc.collect()
    assert not block.handed_out


@pytest.mark.parametrize("storage", STORAGES)
def test_handed_out_while_a_torch_view_lives(storage: Storage) -> None:
    torch = pytest.importorskip("torch")
    array = array_class(storage, rotating=True)((4, 3), np.float32)
    kept = torch.from_numpy(np.asarray(array[1:]))[0].view(3, 1)
    gc.collect()
    assert array.block.handed_out
    kept += 2
    assert np.asarray(array).sum() == 6
    del kept
    gc.collect()
    assert not array.block.handed_out


def test_own_use_and_copies_are_not_handed_out() -> None:
    array, other = RotatingArray((4, 3), np.float32), RotatingArray((4, 3), np.float32)
    view = array[1:3]
    array[0, 0], array[4], view[...] = 1, 2, 3
    array[[0, 1]] = 5
    array[2] = other[1]
    array[0] = other[0]
    kept = [np.asarray(array[[0, 1]]), np.asarray(array[...]).copy(), np.asarray(array, np.float64)]
    array.rotate()
    gc.collect()
    assert kept[0].tolist() == [[0, 0, 0], [5, 5, 5]]
    assert not array.block.handed_out
    assert not other.block.handed_out
    element = np.asarray(array[0, 0])
    assert element.shape == ()
    assert array.block.handed_out
