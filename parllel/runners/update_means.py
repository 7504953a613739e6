"""Means of diagnostics over several updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from parllel.types import State

_MAX_PENDING = 256  # diagnostics that are kept before they are converted


class UpdateMeans(Mapping[str, Any]):
    """Diagnostics of several updates, keyed by name: the mean of numbers, and the last array.

    The mean is over the updates that reported the name. Numbers are converted when the means are read, as
    `float` may wait for a device.
    """

    def __init__(self) -> None:
        self._pending: list[Mapping[str, Any]] = []
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._arrays: dict[str, Any] = {}

    def add(self, diagnostics: Mapping[str, Any]) -> None:
        """Add the diagnostics of one update."""
        if diagnostics:
            self._pending.append(diagnostics)
            if len(self._pending) >= _MAX_PENDING:
                self._convert()

    def _convert(self) -> None:
        for diagnostics in self._pending:
            for name, value in diagnostics.items():
                if getattr(value, "ndim", 0):
                    self._arrays[name] = value
                else:
                    # In this order, also after a resume: another order of the additions rounds otherwise.
                    self._sums[name] = self._sums.get(name, 0.0) + float(value)
                    self._counts[name] = self._counts.get(name, 0) + 1
        self._pending.clear()

    def __getitem__(self, name: str) -> Any:
        self._convert()
        if name in self._arrays:
            return self._arrays[name]
        return self._sums[name] / self._counts[name]

    def __iter__(self) -> Iterator[str]:
        self._convert()
        return iter([*self._sums, *self._arrays])

    def __len__(self) -> int:
        self._convert()
        return len(self._sums) + len(self._arrays)

    def state(self) -> State:
        """Return what was added so far."""
        self._convert()
        arrays = {name: np.asarray(value) for name, value in self._arrays.items()}
        return {"sums": dict(self._sums), "counts": dict(self._counts), "arrays": arrays}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._pending.clear()
        self._sums = {name: float(value) for name, value in state["sums"].items()}
        self._counts = {name: int(value) for name, value in state["counts"].items()}
        self._arrays = dict(state["arrays"])
