"""Infos with the same keys and types as one table of numbers, with a record for each environment.

    [{"x": 1.5, "k": 2}, {"x": 3.0, "k": 4}]   <-->   x 1.5  k 2 | x 3.0  k 4      the bytes of two records

Most simulators report the same few numbers in every step. As a table they are sent from worker to main in a
few microseconds, tables of several processes are joined as bytes, and a column is an array.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

_CODES: dict[type, str] = {
    float: "d",
    int: "q",
    bool: "?",
    np.float64: "d",
    np.float32: "f",
    np.int64: "q",
    np.int32: "i",
    np.bool_: "?",
}
_PLAIN = (float, int, bool)


class InfoLayout:
    """Keys of infos and the types of their values.

    Args:
        keys: the keys, in their order.
        types: for each key, the type of its values.

    Attributes:
        keys, types: the arguments.
        dtype: a record of the table, without gaps; its fields are f0, f1, ...

    Raises:
        KeyError: for a type of which no table can be made.
    """

    __slots__ = ("_of_n", "dtype", "keys", "types")

    def __init__(self, keys: tuple[Any, ...], types: tuple[type, ...]) -> None:
        self.keys, self.types = keys, types
        codes = [_CODES[one] for one in types]
        # "<": without padding, as in `pack`.
        self.dtype = np.dtype([(f"f{k}", f"<{code}") for k, code in enumerate(codes)])
        self._of_n: dict[int, tuple[list[Any], list[type], Any]] = {}

    def pack(self, infos: Sequence[dict[str, Any]]) -> bytes | None:
        """Return the bytes of a table; None if keys or types of some info differ."""
        n = len(infos)
        found = self._of_n.get(n)
        if found is None:
            form = "<" + "".join(_CODES[one] for one in self.types) * n
            found = [*self.keys] * n, [*self.types] * n, struct.Struct(form).pack
            self._of_n[n] = found
        keys, types, pack = found
        # All at once, in C. No dict has a key twice, so equal sequences of keys are split equally.
        if [*chain.from_iterable(infos)] != keys:
            return None
        numbers = [value for info in infos for value in info.values()]
        # Exact types, as the other side restores them.
        if [*map(type, numbers)] != types:
            return None
        try:
            packed: bytes = pack(*numbers)
        except struct.error:  # an int of more than 64 bits
            return None
        return packed


class InfoTable(Sequence[dict[str, Any]]):
    """Infos of the same keys and types. A sequence of dicts, made when they are read.

    Args:
        layout: the keys and types.
        data: the bytes of `InfoLayout.pack`, of one process or several.

    Attributes:
        layout, data: the arguments.
    """

    __slots__ = ("_records", "data", "layout")

    def __init__(self, layout: InfoLayout, data: bytes) -> None:
        self.layout, self.data = layout, data
        self._records = np.frombuffer(data, layout.dtype)

    def column(self, k: int) -> NDArray[Any]:
        """Return the values of the k-th key, [n], as a new array."""
        column: NDArray[Any] = self._records[f"f{k}"].copy()
        return column

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        keys = self.layout.keys
        for values in zip(*map(self._values, range(len(keys))), strict=True):
            yield dict(zip(keys, values))  # noqa: B905 (a third of its time)

    def _values(self, k: int) -> list[Any]:
        column = self._records[f"f{k}"]
        return column.tolist() if self.layout.types[k] in _PLAIN else list(column)

    @overload
    def __getitem__(self, i: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, i: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, i: int | slice) -> Any:
        return list(self)[i]


class JoinedInfos(Sequence[dict[str, Any]]):
    """Infos of several processes in a row, joined when they are read.

    Args:
        parts: for each process, its infos: a list or an InfoTable.

    Attributes:
        parts: the argument.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Sequence[dict[str, Any]]]) -> None:
        self.parts = parts

    def table(self) -> InfoTable | None:
        """Return all as one table; None if they do not fit the layout of the first part that is a table."""
        layout = next((part.layout for part in self.parts if isinstance(part, InfoTable)), None)
        if layout is None:
            return None
        packed = []
        for part in self.parts:
            if isinstance(part, InfoTable):
                data = part.data if part.layout is layout else None
            else:
                data = layout.pack(part)
            if data is None:
                return None
            packed.append(data)
        return InfoTable(layout, b"".join(packed))

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return chain.from_iterable(self.parts)

    @overload
    def __getitem__(self, i: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, i: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, i: int | slice) -> Any:
        return list(self)[i]


class InfoTables:
    """Makes tables of infos, with the layout of the last one where it fits."""

    def __init__(self) -> None:
        self._layout: InfoLayout | None = None

    def table_of(self, infos: Sequence[dict[str, Any]]) -> InfoTable | None:
        """Return a table of infos; None if they have different keys, or other values than numbers."""
        if isinstance(infos, JoinedInfos):
            return infos.table()
        keys = tuple(infos[0]) if infos else ()
        if not keys:
            return None
        layout = self._layout
        if layout is None or layout.keys != keys:
            layout = self._layout = _layout_of(infos[0])
        if layout is None:
            return None
        data = layout.pack(infos)
        if data is None:
            # Types change seldom, but they may: the first step's zero can be an int.
            changed = tuple(map(type, infos[0].values())) != layout.types
            self._layout = None if changed else layout
            return None
        return InfoTable(layout, data)


def _layout_of(info: dict[str, Any]) -> InfoLayout | None:
    types = tuple(map(type, info.values()))
    return InfoLayout(tuple(info), types) if all(one in _CODES for one in types) else None
