"""Dicts with attribute access, the form in which agents receive observations and configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class AttributeDict(dict[str, Any]):
    """Dict whose keys are also attributes: `observation.step` is `observation["step"]`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no key {name!r}; expected one of {list(self)[:20]}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(f"no key {name!r}") from None


def with_attributes(value: Any) -> Any:
    """Copy JSON values and arrays, replacing each dict by an AttributeDict."""
    kind = type(value)
    if kind is list:
        return [with_attributes(item) for item in value]
    if kind is tuple:
        return tuple(with_attributes(item) for item in value)
    if isinstance(value, Mapping):
        return AttributeDict({key: with_attributes(item) for key, item in value.items()})
    if kind is np.ndarray:
        return value.copy()
    return value
