"""Infos of single environments as one info of a vector environment, in gymnasium's form.

    [{"x": 1.0}, {"x": 2.0}, {}]   -->   {"x": [1.0, 2.0, 0.0], "_x": [True, True, False]}

Each key becomes an array [n], and with an underscore in front a mask [n] of the environments that have it.
The first value decides on the array: numbers and arrays are stacked in its dtype, with zeros where there is
no value, dicts are stacked key by key, and anything else is an element of an array of objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.cages.stepping.info_table import InfoTable, InfoTables
from parllel.cages.stepping.step_result import RowInfos

_PLAIN = (int, float, bool)


class InfoStacker:
    """Stacks the infos of rows.

    Args:
        n: number of environments.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._tables = InfoTables()
        self._all = np.ones(n, bool)

    def stack(self, row: RowInfos) -> dict[str, Any]:
        """Return the infos of a row as the vector environment reports them."""
        infos, finals = row
        stacked: dict[str, Any] = {}
        table = self._tables.table_of(infos)
        if table is not None:
            stacked = self._columns_of(table)
        elif any(infos):
            stacked = _stacked(dict(enumerate(infos)), self._n)
        if finals:
            numbers = sorted(finals)
            last = {i: {"final_obs": finals[i][0], "final_info": finals[i][1]} for i in numbers}
            stacked |= _stacked(last, self._n)
        return stacked

    def _columns_of(self, table: InfoTable) -> dict[str, Any]:
        stacked: dict[str, Any] = {}
        for k, (key, kind) in enumerate(zip(table.layout.keys, table.layout.types, strict=True)):
            values = table.column(k)
            stacked[key] = _objects(list(values)) if kind is np.bool_ else values
            stacked[f"_{key}"] = self._all.copy()
        return stacked


def _stacked(infos: dict[int, dict[str, Any]], n: int) -> dict[str, Any]:
    """Stack infos by the numbers of their environments."""
    by_key: dict[str, dict[int, Any]] = {}
    for i, info in infos.items():
        for key, value in info.items():
            if key in by_key:
                by_key[key][i] = value
            else:
                by_key[key] = {i: value}
    stacked: dict[str, Any] = {}
    for key, values in by_key.items():
        has = np.zeros(n, bool)
        has[[*values]] = True
        # Observations stay as they are, so that each environment's can be used without splitting a batch.
        stacked[key] = _array_of(values, n) if key != "final_obs" else _spread(values, n)
        stacked[f"_{key}"] = has
    return stacked


def _array_of(values: dict[int, Any], n: int) -> Any:
    """Return the values of one key, by the numbers of their environments."""
    first = next(iter(values.values()))
    array: NDArray[Any]
    if isinstance(first, dict):
        if all(isinstance(value, dict) for value in values.values()):
            return _stacked(values, n)
        return _spread(values, n)
    if type(first) in _PLAIN or isinstance(first, np.number):
        array = np.zeros(n, type(first))
    elif isinstance(first, np.ndarray):
        array = np.zeros((n, *first.shape), first.dtype)
    else:
        return _spread(values, n)
    try:
        for i, value in values.items():
            array[i] = value
    except (TypeError, ValueError, OverflowError):
        # Words among numbers, arrays of different shapes: no array has a place for both.
        return _spread(values, n)
    return array


def _spread(values: dict[int, Any], n: int) -> NDArray[Any]:
    array = np.full(n, None, object)
    for i, value in values.items():
        array[i] = value
    return array


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    return _spread(dict(enumerate(values)), len(values))
