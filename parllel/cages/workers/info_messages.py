"""Infos of a row as bytes, from the process of the environments to the main process.

    nothing to tell                      b""
    numbers under the same keys in all   length of the layout, layout: pickled (keys, types); then the numbers
    anything else, and ended episodes    NO_LAYOUT, pickled infos and last observations

Most simulators report the same few numbers in every step. Pickled, each numpy number takes a microsecond.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any

import cloudpickle
import numpy as np

from parllel.cages.stepping.step_result import RowInfos

_LENGTH = struct.Struct("<i")
_NO_LAYOUT = -1
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
_PLAIN = (float, int, bool)  # what struct returns


class InfoPacker:
    """Converts the infos of rows to bytes."""

    def __init__(self) -> None:
        self._keys: tuple[Any, ...] = ()
        self._types: tuple[type, ...] = ()
        self._n = 0
        self._head = b""
        self._pack: Any = None

    def pack(self, row: RowInfos) -> bytes:
        """Return a row's infos as bytes."""
        infos, finals = row
        if not finals:
            if not any(infos):
                return b""
            message = self._pack_numbers(infos)
            if message is not None:
                return message
        try:
            packed = pickle.dumps(row[:], pickle.HIGHEST_PROTOCOL)
        except Exception:  # classes of the script, lambdas
            packed = cloudpickle.dumps(row[:])
        return _LENGTH.pack(_NO_LAYOUT) + packed

    def _pack_numbers(self, infos: list[dict[str, Any]]) -> bytes | None:
        keys, types = self._keys, self._types
        if len(infos) != self._n or tuple(infos[0]) != keys:
            keys = self._learn(infos)
            types = self._types
        numbers: list[Any] = []
        for info in infos:
            values = info.values()
            # Exact types, as the other side restores them; a key more or less changes the length.
            if tuple(info) != keys or tuple(map(type, values)) != types:
                return None
            numbers += values
        if self._pack is None:
            return None
        try:
            packed: bytes = self._pack(*numbers)
        except struct.error:  # an int of more than 64 bits
            return None
        return self._head + packed

    def _learn(self, infos: list[dict[str, Any]]) -> tuple[Any, ...]:
        self._n, self._keys = len(infos), tuple(infos[0])
        self._types = tuple(map(type, infos[0].values()))
        self._pack = None
        if all(one in _CODES for one in self._types):
            layout = pickle.dumps((self._n, self._keys, self._types), pickle.HIGHEST_PROTOCOL)
            self._head = _LENGTH.pack(len(layout)) + layout
            self._pack = struct.Struct(_format(self._types, self._n)).pack
        return self._keys


class InfoUnpacker:
    """Converts messages of one InfoPacker back to infos."""

    def __init__(self) -> None:
        self._layout = b""
        self._keys: tuple[Any, ...] = ()
        self._casts: list[tuple[int, type]] = []
        self._unpack: Any = None

    def unpack(self, message: bytes, n: int) -> RowInfos:
        """Return the infos of a row of `n` environments."""
        if not message:
            return RowInfos([{} for _ in range(n)], {})
        (length,) = _LENGTH.unpack_from(message)
        if length == _NO_LAYOUT:
            return RowInfos(*pickle.loads(message[_LENGTH.size :]))
        start = _LENGTH.size + length
        layout = message[_LENGTH.size : start]
        # Compared, not numbered: a caller may leave out rows.
        if layout != self._layout:
            _, self._keys, types = pickle.loads(layout)
            self._casts = [(k, one) for k, one in enumerate(types) if one not in _PLAIN]
            self._unpack = struct.Struct(_format(types, 1)).iter_unpack
            self._layout = layout
        infos = []
        for numbers in self._unpack(message[start:]):
            values = list(numbers)
            for k, cast in self._casts:
                values[k] = cast(values[k])
            infos.append(dict(zip(self._keys, values, strict=True)))
        return RowInfos(infos, {})


def _format(types: tuple[type, ...], n: int) -> str:
    # "<": without padding, the same for one environment and for several.
    return "<" + "".join(_CODES[one] for one in types) * n
