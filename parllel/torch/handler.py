"""The handler of agents that work in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parllel.agents import Handler


class TorchHandler(Handler):
    """Hand tensors that share memory with the rows of the batch to an agent.

    Views are on the CPU, as the batch is; an agent on another device moves what it is given, and
    its answers are copied back.
    """

    def convert(self, array: NDArray[Any]) -> Tensor:
        """Return a tensor on the memory of `array` (on a copy, if it is read-only)."""
        return torch.from_numpy(array if array.flags.writeable else np.array(array))

    def write(self, view: Tensor, value: Tensor) -> None:
        """Copy from whatever device, casting to the type of the batch."""
        view.copy_(value)

    def to_numpy(self, value: Tensor) -> NDArray[Any]:
        """Return an array on the CPU."""
        array: NDArray[Any] = value.detach().cpu().numpy()
        return array
