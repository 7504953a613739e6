"""Policy gradients with discrete actions."""

from __future__ import annotations

import torch
from torch import nn

from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.distributions.categorical import Categorical


class CategoricalPgAgent(PgAgent):
    """Choose one of `n_actions`; actions are int64 and count from `start`, as in a Discrete space.

    Args: see `PgAgent`; the model returns logits [N, n_actions]. For several choices at once give
        a `MultiDiscrete` to a `PgAgent`.
    """

    def __init__(
        self,
        model: nn.Module,
        n_actions: int,
        *,
        start: int = 0,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(model, Categorical(n_actions, start), seed=seed, device=device)
