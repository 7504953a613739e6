"""Target networks: copies of trained networks that follow them slowly."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.system.compilation import compiles
from parllel.torch.algos.adam import Adam
from parllel.torch.module_state import load_module_state, module_state
from parllel.types import State


class TargetNetwork:
    """A copy of a module that follows the parameters theta of the module:

        theta_target <- (1 - tau) theta_target + tau theta

    Float32 parameters on the CPU lie in one array and are updated by one compiled pass.

    Args:
        source: the module that is trained. It must keep its parameters and buffers.
        adam: optimiser of exactly these parameters, in their order; call `update` after its step.

    Attributes:
        module: the copy, without gradients and in eval mode.
        flat: all parameters of the copy as float32 [n]; None on other devices or for other dtypes.
    """

    def __init__(self, source: nn.Module, adam: Adam) -> None:
        self._source, self._adam = source, adam
        self.module = copy.deepcopy(source).requires_grad_(False).eval()
        parameters = list(self.module.parameters())
        # Listed once, since looking for them takes as long as an update.
        self._buffers = list(zip(self.module.buffers(), source.buffers(), strict=True))
        self.flat: NDArray[np.float32] | None = None
        if compiles() and all(p.is_cpu and p.dtype == torch.float32 for p in parameters):
            flat = torch.cat([p.detach().reshape(-1) for p in parameters])
            # Nobody else holds the copy, so its parameters may become views.
            offset = 0
            for p in parameters:
                p.data = flat[offset : offset + p.numel()].view(p.shape)
                offset += p.numel()
            self.flat = flat.numpy()

    @torch.no_grad()
    def update(self, tau: float) -> None:
        """Move the copy towards the module. With `tau` 1 it becomes equal to it."""
        newest = self._adam.flat_parameters
        if self.flat is not None and newest is not None:
            # Imported here, since numba takes a third of a second and a policy that only acts needs none.
            from parllel.algos import compiled_updates

            compiled_updates.move_towards(self.flat, newest, tau)
        else:
            parameters: list[Tensor] = list(self.module.parameters())
            torch._foreach_lerp_(parameters, list(self._source.parameters()), tau)
        for own, other in self._buffers:
            own.copy_(other)

    def state(self) -> State:
        """Return the parameters of the copy by name."""
        return module_state(self.module)

    def load_state(self, state: Any) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if names or shapes of parameters differ.
        """
        load_module_state(self.module, state)
