"""Normal distribution with independent dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from parllel.algos.arguments import shape_of
from parllel.torch.distributions.distribution import Distribution

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class GaussianParams(NamedTuple):
    """`mean` `[..., *action_shape]`, and `log_std` of the same shape, or `[*action_shape]` for all states."""

    mean: Tensor
    log_std: Tensor


class Gaussian(Distribution):
    """Normal distribution with diagonal covariance over actions of shape `action_shape`.

    Actions are not squashed or clipped: the likelihood belongs to the action as drawn. If a space
    has bounds, cages clip the actions that environments receive.

    Args:
        action_shape: shape of one action; an int n means (n,).

    Raises:
        TypeError: if it is not a shape.
    """

    def __init__(self, action_shape: int | Sequence[int]) -> None:
        self.action_shape = shape_of(action_shape, "Gaussian: action_shape")
        self._event = tuple(range(-len(self.action_shape), 0))

    @property
    def action_space(self) -> spaces.Box:
        """An unbounded Box of this shape."""
        return spaces.Box(-np.inf, np.inf, self.action_shape, np.float32)

    def draw_noise(self, generator: torch.Generator, T: int, B: int) -> Tensor:
        """Draw standard normal noise `[T, B, *action_shape]`."""
        return torch.empty((T, B, *self.action_shape)).normal_(generator=generator)

    def sample(self, params: GaussianParams, noise: Tensor) -> Tensor:
        """Return mean + std * noise."""
        mean, log_std = params
        return torch.addcmul(mean, log_std.exp(), noise.to(mean.dtype))

    def mode(self, params: GaussianParams) -> Tensor:
        """Return the mean."""
        return params[0]

    def log_prob(self, params: GaussianParams, action: Tensor) -> Tensor:
        """Return the log of the density, summed over the action's dimensions, [...]."""
        mean, log_std = params
        # Scaled before squaring: a variance would leave the range of float32 at half the exponent.
        scaled = (action - mean) * (-log_std).exp()
        return self._sum(-0.5 * scaled * scaled - log_std - HALF_LOG_TWO_PI)

    def entropy(self, params: GaussianParams) -> Tensor:
        """Return the sum over dimensions of log std + log(2 pi e) / 2, [...].

        Raises:
            ValueError: if there is not one mean for each number of an action.
        """
        mean, log_std = params
        # Checked in updates only: acting would take longer. A single mean would silently broadcast.
        if mean.shape[mean.ndim - len(self.action_shape) :] != self.action_shape:
            size = ", ".join(map(str, ("...", *self.action_shape)))
            raise ValueError(f"Gaussian: expected means of shape [{size}], got {tuple(mean.shape)}")
        # A log_std shared by all states has no rows, but every row has an entropy.
        return self._sum((log_std + (0.5 + HALF_LOG_TWO_PI)).expand_as(mean))

    def kl_divergence(self, params_p: GaussianParams, params_q: GaussianParams) -> Tensor:
        """Return KL(p || q), [...] (Kullback and Leibler 1951; closed form for normals)."""
        (mean_p, log_std_p), (mean_q, log_std_q) = params_p, params_q
        log_ratio = log_std_p - log_std_q
        scaled = (mean_p - mean_q) * (-log_std_q).exp()
        # expm1 keeps the divergence of nearly equal distributions exact.
        return self._sum(0.5 * (scaled * scaled + torch.expm1(2 * log_ratio)) - log_ratio)

    def _sum(self, terms: Tensor) -> Tensor:
        # In torch an empty `dim` means all dimensions, rows included.
        return terms.sum(dim=self._event) if self._event else terms
