"""Adam, created with the first update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from parllel.torch.module_state import load_optimizer_state, optimizer_state
from parllel.types import State


class LazyAdam:
    """Adam for algorithms that may never make an update; created on first use.

    torch's optimisers import its compiler. A process that only plays a trained policy builds the algorithm as
    well, and the import would add half again to its start-up time.

    Args:
        parameters: to optimise.
        options: of `torch.optim.Adam`.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], **options: Any) -> None:
        self._parameters, self._options = list(parameters), options
        self._optimizer: torch.optim.Adam | None = None
        self._loaded: State | None = None

    @property
    def optimizer(self) -> torch.optim.Adam:
        """The optimiser, created if needed."""
        if self._optimizer is None:
            optimizer = torch.optim.Adam(self._parameters, **self._options)
            if self._loaded is not None:
                load_optimizer_state(optimizer, self._loaded)
            self._optimizer, self._loaded = optimizer, None
        return self._optimizer

    def prepare(self) -> None:
        """Create the optimiser now."""
        _ = self.optimizer

    def state(self) -> State:
        """Return moments and options, as `optimizer_state` does."""
        return optimizer_state(self.optimizer)

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. The caller must not modify it afterwards.

        Raises:
            ValueError: if the state belongs to other parameters.
        """
        groups = state["param_groups"]
        fits = len(groups) == 1 and len(groups[0]["params"]) == len(self._parameters)
        # A state that does not fit is loaded at once, so that torch reports it here.
        if fits and self._optimizer is None:
            self._loaded = state
        else:
            load_optimizer_state(self.optimizer, state)
