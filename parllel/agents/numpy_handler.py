"""The handler of agents that work in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.agents.handler import Handler


class NumpyHandler(Handler):
    """Hand numpy views of rows to an agent and copy its arrays into the batch."""

    def convert(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return `array` itself."""
        return array

    def write(self, view: NDArray[Any], value: Any) -> None:
        """Copy, casting within a kind of number (int64 to int32, float64 to float32)."""
        np.copyto(view, value)

    def to_numpy(self, value: Any) -> NDArray[Any]:
        """Return `value` as an array."""
        return np.asarray(value)
