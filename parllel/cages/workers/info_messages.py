"""Infos of a row as bytes, from the process of the environments to the main process.

    nothing to tell                      b""
    numbers under the same keys in all   length of the layout, layout: pickled (keys, types); then the table
    anything else, and ended episodes    NO_LAYOUT, pickled infos and last observations

Pickled, each numpy number would take a microsecond.
"""

from __future__ import annotations

import pickle
import struct

import cloudpickle

from parllel.cages.stepping.info_table import InfoLayout, InfoTable, InfoTables
from parllel.cages.stepping.step_result import RowInfos

_LENGTH = struct.Struct("<i")
_NO_LAYOUT = -1


class InfoPacker:
    """Converts the infos of rows to bytes."""

    def __init__(self) -> None:
        self._tables = InfoTables()
        self._layout: InfoLayout | None = None
        self._head = b""

    def pack(self, row: RowInfos) -> bytes:
        """Return a row's infos as bytes."""
        infos, finals = row
        if not finals:
            if not any(infos):
                return b""
            table = self._tables.table_of(infos)
            if table is not None:
                return self._head_of(table.layout) + table.data
        try:
            packed = pickle.dumps(row[:], pickle.HIGHEST_PROTOCOL)
        except Exception:  # classes of the script, lambdas
            packed = cloudpickle.dumps(row[:])
        return _LENGTH.pack(_NO_LAYOUT) + packed

    def _head_of(self, layout: InfoLayout) -> bytes:
        if layout is not self._layout:
            packed = pickle.dumps((layout.keys, layout.types), pickle.HIGHEST_PROTOCOL)
            self._layout, self._head = layout, _LENGTH.pack(len(packed)) + packed
        return self._head


class InfoUnpacker:
    """Converts messages back to infos. Tables of equal layouts share it, so that they can be joined."""

    def __init__(self) -> None:
        self._packed = b""
        self._layout: InfoLayout | None = None

    def unpack(self, message: bytes, n: int) -> RowInfos:
        """Return the infos of a row of `n` environments."""
        if not message:
            return RowInfos([{} for _ in range(n)], {})
        (length,) = _LENGTH.unpack_from(message)
        if length == _NO_LAYOUT:
            return RowInfos(*pickle.loads(message[_LENGTH.size :]))
        start = _LENGTH.size + length
        packed = message[_LENGTH.size : start]
        layout = self._layout
        # Compared, not numbered: a caller may leave out rows.
        if layout is None or packed != self._packed:
            self._layout = layout = InfoLayout(*pickle.loads(packed))
            self._packed = packed
        return RowInfos(InfoTable(layout, message[start:]), {})
