"""Agent of soft actor-critic."""

from __future__ import annotations

import torch
from gymnasium import spaces
from torch import Tensor, nn

from parllel.torch.agents.actor_critic_agent import ActorCriticAgent
from parllel.torch.distributions.squashed_gaussian import SquashedGaussian


class SacAgent(ActorCriticAgent):
    """Agent of SAC: draws actions from a squashed normal distribution; in eval mode takes its median.

    Args:
        policy: module that returns means and log standard deviations [N, 2 * size], such as a `PolicyModel`.
        critics: module that returns the values [n_critics, N] of observations and unit actions [N, size],
            such as a `CriticModel`.
        action_space: a Box of floats with finite bounds.
        seed: seed of the generator of all noise.
        device: device on which the models run.

    Raises:
        TypeError, ValueError: for another space, for anything but modules, and for a device that PyTorch
            cannot use.
    """

    def __init__(
        self,
        policy: nn.Module,
        critics: nn.Module,
        action_space: spaces.Box,
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.distribution = SquashedGaussian(action_space)
        super().__init__(policy, critics, self.distribution.scale, seed=seed, device=device)

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the median action."""
        return self.distribution.mode(outputs)

    def explore(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return a sample of the distribution."""
        return self.distribution.sample(outputs, noise)
