"""Policy gradients with continuous actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.distributions.gaussian import Gaussian


class GaussianPgAgent(PgAgent):
    """Draw actions of shape `action_shape` from a normal distribution.

    Actions are stored as drawn, so that likelihoods are right. Those that lie outside of a Box are clipped
    to its bounds on their way to the environment, by the cage.

    Args: see `PgAgent`; the model returns `GaussianParams`.
    """

    def __init__(
        self,
        model: nn.Module,
        action_shape: int | Sequence[int],
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(model, Gaussian(action_shape), seed=seed, device=device)
