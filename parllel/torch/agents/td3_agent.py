"""Agent of TD3."""

from __future__ import annotations

import torch
from gymnasium import spaces
from torch import Tensor, nn

from parllel.algos.arguments import check_not_negative
from parllel.torch.agents.actor_critic_agent import ActorCriticAgent
from parllel.torch.box_scale import BoxScale


class TD3Agent(ActorCriticAgent):
    """Agent of TD3: a deterministic policy, to whose unit actions normal noise is added when it samples.

    Args:
        policy: module that returns [N, size], such as a `PolicyModel`; the unit action is its tanh.
        critics: module that returns the values [n_critics, N] of observations and unit actions [N, size],
            such as a `CriticModel`.
        action_space: a Box of floats with finite bounds.
        exploration_noise: standard deviation of the noise, where an action's range is [-1, 1].
        seed: seed of the generator of all noise.
        device: device on which the models run.

    Raises:
        TypeError, ValueError: for another space, for anything but modules, for negative noise, and for a
            device that PyTorch cannot use.
    """

    def __init__(
        self,
        policy: nn.Module,
        critics: nn.Module,
        action_space: spaces.Box,
        *,
        exploration_noise: float,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        check_not_negative("TD3Agent", exploration_noise=exploration_noise)
        self.exploration_noise = exploration_noise
        scale = BoxScale(action_space, "TD3Agent")
        super().__init__(policy, critics, scale, seed=seed, device=device)

    def mode(self, outputs: Tensor) -> Tensor:
        """Return the policy's action."""
        return self.scale.from_unit(outputs.tanh())

    def explore(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return the policy's action with noise, clipped to the Box."""
        unit = outputs.tanh() + self.exploration_noise * noise.to(outputs.dtype)
        return self.scale.from_unit(unit.clamp(-1, 1))
