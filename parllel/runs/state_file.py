"""States on disk: arrays and JSON values in one zip file, written whole or not at all.

    structure.json   {"arrays": [[dtype, shape, offset], ...], "state": {...}}
    arrays.bin       the elements of all arrays in C order, each array at its offset

The state is in the form of `state_values`. The members are not compressed, so that their sizes are those of
the file; their checksums are compared when they are read. The elements of LargeArrays are written from where
they are and stay in the file when it is loaded, so neither takes memory.

Not np.savez: 8 times slower for thousands of small arrays; not safetensors: no checksums, and no strings.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from parllel.buffers.large_array import FileArray, LargeArray
from parllel.logging.files import replaced_file
from parllel.runs.state_values import from_json, numbers_of_large, to_json
from parllel.types import State

_Array: TypeAlias = np.ndarray[Any, Any]

_STRUCTURE, _ELEMENTS = "structure.json", "arrays.bin"
_ALIGNMENT = 16  # bytes
_LOCAL_HEADER = 30  # bytes of a member's header in a zip file, without name and extra field
_CHUNK = 1 << 20  # bytes that are read or written at a time
_SMALL = 1 << 16  # bytes up to which a copy is cheaper than a view
_DTYPE = re.compile(r"[<>|][biufcSU][0-9]{1,9}")  # what `dtype.str` says of plain dtypes


def save_state(path: str | os.PathLike[str], state: State) -> None:
    """Write `state` to `path` atomically, so that readers find either the old file or the new one.

    Arrays may hold numbers, booleans or strings of fixed length; nothing is pickled. The state
    dicts of torch's optimisers and schedulers can be saved: keys may be ints, and tensors are
    restored as tensors, on the CPU. Numpy scalars are restored as arrays without dimensions.
    LargeArrays are restored as LargeArrays, whose elements stay in the file.

    Raises:
        TypeError: if the state holds anything but dicts, lists, tuples, numbers, strings, None,
            arrays and tensors. The message names the place.
        OSError: if the file cannot be written. The old file is kept.
    """
    path = Path(path)
    arrays = _Arrays()
    structure = to_json(state, arrays.add, "state")
    with replaced_file(path) as file:
        _write(file, structure, arrays)


def check_state(state: State) -> None:
    """Check that a state can be saved, raising the same TypeError as `save_state`, without writing it."""
    to_json(state, _Arrays().add, "state")


def load_state(path: str | os.PathLike[str]) -> State:
    """Read a state written by `save_state`.

    Raises:
        ValueError: if the file is damaged or not a saved state. The message names the file.
        OSError: if the file cannot be read.
        MemoryError: if the state does not fit into memory.
    """
    with open(path, "rb") as file:
        try:
            return _read(file, Path(path))
        except MemoryError:
            raise  # not damage: all sizes were checked against the file's
        except Exception as error:  # zipfile raises many kinds of errors for damaged files
            raise ValueError(f"{path}: not a saved state, or damaged: {error}") from error


class _Arrays:
    """The arrays of a state and their offsets in the file."""

    def __init__(self) -> None:
        self.arrays: list[_Array | LargeArray] = []
        self.entries: list[tuple[str, tuple[int, ...], int]] = []
        self.nbytes = 0

    def add(self, array: _Array | LargeArray, at: str) -> int:
        """Add an array and return its number."""
        if not _DTYPE.fullmatch(array.dtype.str) or not array.dtype.itemsize:
            raise TypeError(
                f"{at}: expected arrays of numbers, booleans or strings, got dtype {array.dtype}"
            )
        offset = _aligned(self.nbytes)
        self.arrays.append(array)
        self.entries.append((array.dtype.str, array.shape, offset))
        self.nbytes = offset + array.nbytes
        return len(self.arrays) - 1

    def pieces(self) -> Iterator[Any]:
        """Yield the bytes of the member, the gaps included."""
        end = 0
        for array, (_, _, offset) in zip(self.arrays, self.entries, strict=True):
            yield bytes(offset - end)
            if isinstance(array, LargeArray):
                yield from array.pieces()
            elif array.nbytes <= _SMALL:
                yield array.tobytes()
            else:
                yield _bytes_of(np.ascontiguousarray(array))
            end = offset + array.nbytes


def _write(file: BinaryIO, structure: Any, arrays: _Arrays) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        content = {"arrays": arrays.entries, "state": structure}
        # A ZipInfo has the date 1980 unless it is given one, so equal states make equal files.
        archive.writestr(zipfile.ZipInfo(_STRUCTURE), json.dumps(content))
        member = zipfile.ZipInfo(_ELEMENTS)
        # zipfile has to know in advance whether the member gets large.
        member.file_size = arrays.nbytes
        raw: Any = archive.open(member, "w")
        with io.BufferedWriter(raw, _CHUNK) as elements:
            for piece in arrays.pieces():
                elements.write(piece)


def _read(file: BinaryIO, path: Path) -> State:
    with zipfile.ZipFile(file) as archive:
        content = json.loads(archive.read(_member(archive, file, _STRUCTURE)))
        if not isinstance(content, dict) or set(content) != {"arrays", "state"}:
            raise ValueError("expected arrays and a state in its structure")
        if not isinstance(content["state"], dict):
            raise ValueError(f"expected a dict as state, got {content['state']!r:.80}")
        member = _member(archive, file, _ELEMENTS)
        layout = _layout(content["arrays"], member.file_size)
        large, begin = numbers_of_large(content["state"]), _begin_of(member, file)
        raw: Any = archive.open(member)
        arrays: list[_Array | LargeArray] = []
        with io.BufferedReader(raw, _CHUNK) as elements:
            for number, (dtype, shape, offset, gap, nbytes) in enumerate(layout):
                elements.read(gap)
                if number in large:
                    _skip(elements, nbytes)
                    arrays.append(FileArray(path, begin + offset, shape, dtype))
                else:
                    arrays.append(_read_array(elements, dtype, shape, nbytes))
            # Up to the end, where zipfile compares the checksum, even without elements.
            elements.read(1)
    state: State = from_json(content["state"], arrays)
    return state


def _member(archive: zipfile.ZipFile, file: BinaryIO, name: str) -> zipfile.ZipInfo:
    """Return a member whose size is no more than what the file can hold."""
    info = archive.getinfo(name)
    length = os.fstat(file.fileno()).st_size
    sizes = (info.compress_size, info.file_size)
    if info.compress_type != zipfile.ZIP_STORED or sizes[0] != sizes[1] or sizes[0] > length:
        raise ValueError(f"{name} has sizes {sizes} in a file of {length} bytes")
    return info


def _begin_of(member: zipfile.ZipInfo, file: BinaryIO) -> int:
    """Return the position in the file of the first byte of a member."""
    file.seek(member.header_offset)
    header = file.read(_LOCAL_HEADER)
    # The lengths of its name and of its extra field, which follow the header.
    name, extra = struct.unpack("<HH", header[-4:])
    return member.header_offset + len(header) + int(name) + int(extra)


def _layout(entries: Any, total: int) -> list[tuple[np.dtype[Any], tuple[int, ...], int, int, int]]:
    """Return (dtype, shape, offset, gap before it, bytes) of each array; together they fill the member."""
    layout, end = [], 0
    dtypes: dict[str, np.dtype[Any]] = {}
    # Nothing in the file is trusted: a wrong size would allocate any amount of memory.
    for name, shape, offset in entries:
        if name not in dtypes:
            dtypes[name] = _dtype(name)
        if not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError(f"expected the shape of an array, got {shape!r:.80}")
        if type(offset) is not int or offset != _aligned(end):
            raise ValueError(f"expected an array at {_aligned(end)}, got {offset!r:.80}")
        nbytes = math.prod(shape) * dtypes[name].itemsize
        layout.append((dtypes[name], tuple(shape), offset, offset - end, nbytes))
        end = offset + nbytes
        if end > total:
            raise ValueError(f"expected arrays within {total} bytes, got one that ends at {end}")
    if end != total:
        raise ValueError(f"expected arrays of {total} bytes, got {end}")
    return layout


def _dtype(name: Any) -> np.dtype[Any]:
    if not isinstance(name, str) or not _DTYPE.fullmatch(name):
        raise ValueError(f"expected the dtype of an array, got {name!r:.80}")
    dtype = np.dtype(name)
    # Other spellings of the same dtype are none that `save_state` writes.
    if dtype.str != name or not dtype.itemsize:
        raise ValueError(f"expected the dtype of an array, got {name!r}")
    return dtype


def _skip(file: io.BufferedReader, nbytes: int) -> None:
    """Read bytes of which only the checksum is wanted."""
    room = bytearray(min(nbytes, _CHUNK))
    for begin in range(0, nbytes, _CHUNK):
        chunk = memoryview(room)[: min(_CHUNK, nbytes - begin)]
        if file.readinto(chunk) != len(chunk):
            raise ValueError("the elements end too early")


def _read_array(
    file: io.BufferedReader, dtype: np.dtype[Any], shape: tuple[int, ...], nbytes: int
) -> _Array:
    # Not a view of one large buffer, which would keep the elements of all arrays in memory.
    array: _Array = np.empty(shape, dtype)
    if 0 < nbytes <= _SMALL:
        array[...] = np.frombuffer(file.read(nbytes), dtype).reshape(shape)
    elif nbytes:
        target = _bytes_of(array)
        for begin in range(0, nbytes, _CHUNK):
            chunk = target[begin : begin + _CHUNK]
            if file.readinto(chunk) != len(chunk):
                raise ValueError("the elements end too early")
    return array


def _bytes_of(array: _Array) -> memoryview:
    """Return the memory of a contiguous array that is not empty."""
    return array.reshape(-1).view(np.uint8).data


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
