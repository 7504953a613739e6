"""Interface of action distributions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from parllel.types import Tree


class Distribution(ABC):
    """A family of distributions. Methods take the parameters, so no object is created per step.

    Parameters and actions have any number of leading dimensions, `[...]`, usually `[N]`. All
    methods except sampling and `mode` are differentiable in the parameters. The dimensions of an action
    form one event: log probabilities are summed over them.
    """

    @property
    def action_space(self) -> Space[Any] | None:
        """The space of one action, compared with the environments' action space; None if unknown."""
        return None

    @abstractmethod
    def draw_noise(self, generator: torch.Generator, T: int, B: int) -> Tensor:
        """Draw the noise that `sample` needs for a batch, on the CPU, float32 `[T, B, *noise_shape]`."""

    @abstractmethod
    def sample(self, params: Tree, noise: Tensor) -> Tensor:
        """Map noise `[..., *noise_shape]` to an action."""

    @abstractmethod
    def mode(self, params: Tree) -> Tensor:
        """Return the most likely action."""

    @abstractmethod
    def log_prob(self, params: Tree, action: Tensor) -> Tensor:
        """Return the log of the probability (density) of `action`, [...]."""

    @abstractmethod
    def entropy(self, params: Tree) -> Tensor:
        """Return the entropy in nats, [...]."""

    @abstractmethod
    def kl_divergence(self, params_p: Tree, params_q: Tree) -> Tensor:
        """Return KL(p || q) in nats, [...]."""

    def sample_and_log_prob(self, params: Tree, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the action of `sample` and its log probability, [...]. Used to act.

        Override when computing them together is cheaper.
        """
        action = self.sample(params, noise)
        return action, self.log_prob(params, action)

    def log_prob_and_entropy(self, params: Tree, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy. Override when computing them together is cheaper."""
        return self.log_prob(params, action), self.entropy(params)
