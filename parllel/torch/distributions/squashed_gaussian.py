"""Normal distribution squashed by tanh into the bounds of a Box."""

from __future__ import annotations

import math

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from parllel.torch.box_scale import BoxScale
from parllel.torch.distributions.distribution import Distribution
from parllel.torch.distributions.gaussian import HALF_LOG_TWO_PI

# As in the authors' code: a larger deviation is uniform for all purposes, a smaller one has no density left.
MIN_LOG_STD, MAX_LOG_STD = -20.0, 2.0
# tanh of this is the largest float32 below 1, or close to it.
_MOST = 1 - 2**-23


class SquashedGaussian(Distribution):
    """tanh of a normal distribution, scaled to the bounds of a Box (Haarnoja et al. 2018b, appendix C).

    With u ~ N(mean, std) in each dimension, the *unit action* is y = tanh(u), in [-1, 1], and the action
    y * (high - low) / 2 + (high + low) / 2. The density of the unit action is exact:

        log p(y) = log N(u; mean, std) - log(1 - y^2),  log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))

    Parameters are the outputs of a policy, [..., 2 * size]: all means, then the logarithms of all standard
    deviations, which are clipped to [-20, 2].

    Args:
        space: a Box of floats with finite bounds.

    Raises:
        TypeError, ValueError: for another space.
    """

    def __init__(self, space: spaces.Box) -> None:
        self.scale = BoxScale(space, "SquashedGaussian")
        # Change of variables from unit actions to actions.
        half = (space.high.astype(float) - space.low.astype(float)) / 2
        self._log_scale = sum(math.log(x) for x in half.ravel().tolist())

    @property
    def action_space(self) -> spaces.Box:
        """The Box."""
        box: spaces.Box = self.scale.space
        return box

    @property
    def n_params(self) -> int:
        """Number of outputs of a policy: a mean and a log standard deviation for each dimension."""
        return 2 * self.scale.size

    def draw_noise(self, generator: torch.Generator, T: int, B: int) -> Tensor:
        """Draw standard normal noise [T, B, size]."""
        return torch.empty((T, B, self.scale.size)).normal_(generator=generator)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return the action of the noise [..., size]."""
        mean, log_std = self.split(params)
        return self.scale.from_unit(torch.addcmul(mean, log_std.exp(), noise.to(mean)).tanh())

    def mode(self, params: Tensor) -> Tensor:
        """Return the action of the mean, which is the median of the distribution."""
        mean, _ = self.split(params)
        return self.scale.from_unit(mean.tanh())

    def unit_sample_and_log_prob(self, params: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return unit actions [..., size] and the log of their density [...], both with gradients.

        This is the reparameterised sample of SAC. Its density does not depend on the bounds of the Box.
        """
        mean, log_std = self.split(params)
        noise = noise.to(mean)
        u = torch.addcmul(mean, log_std.exp(), noise)
        # (u - mean) / std is the noise itself.
        log_prob = -0.5 * noise * noise - log_std - HALF_LOG_TWO_PI - log_slope(u)
        return u.tanh(), log_prob.sum(dim=-1)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """Return the log of the density of actions in the units of the Box, [...].

        Actions on or beyond a bound count as the closest number that float32 can tell from it.
        """
        mean, log_std = self.split(params)
        u = torch.atanh(self.scale.to_unit(action).to(mean).clamp(-_MOST, _MOST))
        scaled = (u - mean) * (-log_std).exp()
        terms = -0.5 * scaled * scaled - log_std - HALF_LOG_TWO_PI - log_slope(u)
        return terms.sum(dim=-1) - self._log_scale

    def entropy(self, params: Tensor) -> Tensor:
        """Raise NotImplementedError: there is no closed form. Use the mean of -log_prob over samples."""
        raise NotImplementedError(
            "SquashedGaussian: the entropy has no closed form; average -log_prob over samples"
        )

    def kl_divergence(self, params_p: Tensor, params_q: Tensor) -> Tensor:
        """Return KL(p || q), [...]. It is that of the normal distributions, since tanh is invertible."""
        (mean_p, log_std_p), (mean_q, log_std_q) = self.split(params_p), self.split(params_q)
        log_ratio = log_std_p - log_std_q
        scaled = (mean_p - mean_q) * (-log_std_q).exp()
        terms = 0.5 * (scaled * scaled + torch.expm1(2 * log_ratio)) - log_ratio
        return terms.sum(dim=-1)

    @staticmethod
    def split(params: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and clipped log standard deviations, [..., size] each."""
        mean, log_std = params.tensor_split(2, dim=-1)
        return mean, log_std.clamp(MIN_LOG_STD, MAX_LOG_STD)


def log_slope(u: Tensor) -> Tensor:
    """Return log(1 - tanh(u)^2) for any u, without cancellation."""
    return 2 * (math.log(2) - u - functional.softplus(-2 * u))
