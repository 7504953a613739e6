"""Adam, made with the first update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from parllel.torch.module_state import load_optimizer_state, optimizer_state
from parllel.types import State


class LazyAdam:
    """An optimiser for algorithms that may never make an update.

    torch's optimisers import its compiler, which takes half as long as all else that a process does before it
    plays a trained policy; the algorithm is put together there too.

    Args:
        parameters: what it moves.
        options: of `torch.optim.Adam`.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], **options: Any) -> None:
        self._parameters, self._options = list(parameters), options
        self._optimizer: torch.optim.Adam | None = None
        self._loaded: State | None = None

    @property
    def optimizer(self) -> torch.optim.Adam:
        """The optimiser, from now on."""
        if self._optimizer is None:
            optimizer = torch.optim.Adam(self._parameters, **self._options)
            if self._loaded is not None:
                load_optimizer_state(optimizer, self._loaded)
            self._optimizer, self._loaded = optimizer, None
        return self._optimizer

    def prepare(self) -> None:
        """Make the optimiser now."""
        _ = self.optimizer

    def state(self) -> State:
        """Return moments and options, as `optimizer_state` does."""
        return optimizer_state(self.optimizer)

    def load_state(self, state: State) -> None:
        """Take back what `state` returned, which must not be changed afterwards.

        Raises:
            ValueError: if it is of other parameters.
        """
        groups = state["param_groups"]
        fits = len(groups) == 1 and len(groups[0]["params"]) == len(self._parameters)
        # What does not fit is loaded at once, for torch to say so.
        if fits and self._optimizer is None:
            self._loaded = state
        else:
            load_optimizer_state(self.optimizer, state)
