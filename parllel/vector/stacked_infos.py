"""Infos of single environments as one info of a vector environment, in gymnasium's form.

    [{"x": 1.0}, {"x": 2.0}, {}]   -->   {"x": [1.0, 2.0, 0.0], "_x": [True, True, False]}

Equal to `gymnasium.vector.VectorEnv._add_info`, which takes a microsecond for each key of each environment.
Where all environments have the same keys with values of the same types, a key is stacked at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from parllel.cages.stepping.step_result import RowInfos

_NUMBERS = (int, float, bool)


def stack_infos(row: RowInfos, env: VectorEnv[Any, Any, Any]) -> dict[str, Any]:
    """Return the infos of a row as the vector environment `env` reports them."""
    infos, finals = row
    stacked: dict[str, Any] = {}
    if any(infos):
        alike = _stack_alike(infos)
        if alike is not None:
            stacked = alike
        else:
            for i, info in enumerate(infos):
                stacked = env._add_info(stacked, info, i)
    for i in sorted(finals):
        observation, info = finals[i]
        stacked = env._add_info(stacked, {"final_obs": observation, "final_info": info}, i)
    return stacked


def _stack_alike(infos: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Stack infos of equal keys and types; None for others."""
    first, n = infos[0], len(infos)
    keys = first.keys()
    for info in infos:
        if info.keys() != keys:
            return None
    stacked: dict[str, Any] = {}
    for key, one in first.items():
        values = [info[key] for info in infos]
        kind = type(one)
        for value in values:
            if type(value) is not kind:
                return None
        array: Any
        if kind in _NUMBERS or issubclass(kind, np.number):
            array = np.array(values, kind)
        elif kind is np.ndarray:
            if any(value.shape != one.shape or value.dtype != one.dtype for value in values):
                return None
            array = np.array(values, one.dtype)
        elif kind is dict:
            array = _stack_alike(values)
            if array is None:
                return None
        else:
            array = np.full(n, None, object)
            for i, value in enumerate(values):
                array[i] = value
        stacked[key], stacked[f"_{key}"] = array, np.ones(n, bool)
    return stacked
