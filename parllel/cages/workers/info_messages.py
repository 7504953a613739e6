"""Infos of a row as bytes, from the process of the environments to the main process.

    nothing to tell                      b""
    numbers under the same keys in all   length of the layout, layout: pickled (keys, types); then the table
    ended episodes, and no other infos   ENDS, pickled: by environment, type, shape and bytes of the last
                                         observation, and its info
    anything else                        NO_LAYOUT, pickled infos and last observations

Pickled, each numpy number would take a microsecond, and each array three, in both processes.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from parllel.cages.stepping.info_table import InfoLayout, InfoTable, InfoTables
from parllel.cages.stepping.step_result import RowInfos
from parllel.types import Tree

_LENGTH = struct.Struct("<i")
_NO_LAYOUT, _ENDS = -1, -2


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
        elif not any(infos):
            message = _ends(finals)
            if message is not None:
                return message
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


def _ends(finals: dict[int, tuple[Tree, dict[str, Any]]]) -> bytes | None:
    """Return a message of last observations; None if they are not arrays, or an info cannot be pickled."""
    ends = {}
    for i, (observation, info) in finals.items():
        # The name of a record's type does not tell its fields.
        if type(observation) is not np.ndarray or observation.dtype.isbuiltin != 1:
            return None
        if observation.dtype.hasobject:
            return None
        ends[i] = (observation.dtype.str, observation.shape, observation.tobytes()), info
    try:
        return _LENGTH.pack(_ENDS) + pickle.dumps(ends, pickle.HIGHEST_PROTOCOL)
    except Exception:  # classes of the script, lambdas
        return None


def _array(kind: str, shape: tuple[int, ...], data: bytes) -> NDArray[Any]:
    # A copy, as an array of bytes could not be written to.
    array: NDArray[Any] = np.frombuffer(data, kind).reshape(shape).copy()
    return array


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
        if length == _ENDS:
            ends = pickle.loads(message[_LENGTH.size :])
            finals = {i: (_array(*form), info) for i, (form, info) in ends.items()}
            return RowInfos([{} for _ in range(n)], finals)
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
