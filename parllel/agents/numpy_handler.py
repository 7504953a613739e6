"""Handler for numpy agents."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.agents.agent import Agent
from parllel.agents.handler import Handler
from parllel.agents.random_agent import RandomAgent
from parllel.types import CompiledActs, overrides


class NumpyHandler(Handler):
    """Passes numpy views of the rows to an agent and copies its outputs into the batch.

    Raises:
        TypeError: if `agent` is not an Agent, or has a PyTorch model.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        # Recognised by a method of torch modules, because this package does not import torch.
        if any(hasattr(model, "named_parameters") for model in self._models()):
            raise TypeError(
                f"{type(self).__name__}: agent: {type(agent).__name__} has a PyTorch model; "
                "use TorchHandler"
            )

    def convert(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return `array` itself."""
        return array

    @staticmethod
    def write(view: NDArray[Any], value: Any) -> None:
        """Copy `value` into `view`, casting within a kind of number (int64 to int32, float64 to float32)."""
        # An assignment takes half the time, but would cast a float to an int without a word.
        if getattr(value, "dtype", None) is view.dtype:
            view[...] = value
        else:
            np.copyto(view, value)

    def compiled_acts(self) -> CompiledActs | None:
        """Write the actions of this batch if they are known before it begins: those of a RandomAgent."""
        # Not of a subclass, which may look at the observations.
        known = type(self.agent) is RandomAgent and isinstance(self._noise, np.ndarray)
        if not known or overrides(self, NumpyHandler, "step", "bound_step", "_bind_step", "write"):
            return None
        np.copyto(np.asarray(self._in_use().samples.agent.action), self._noise)
        return CompiledActs("given")

    def to_numpy(self, value: Any) -> NDArray[Any]:
        """Return `value` as an array."""
        return np.asarray(value)
