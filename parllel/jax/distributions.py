"""Action distributions: discrete choices, and independent normal distributions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Space, spaces

from parllel.algos.arguments import shape_of
from parllel.types import Tree

_LEAST = float(np.finfo(np.float32).min)
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Distribution(ABC):
    """A family of distributions. Methods are pure functions that JAX traces.

    Parameters and actions have any number of leading dimensions, `[...]`, usually `[N]`. The dimensions of an
    action form one event: log probabilities are summed over them. Equal distributions should be equal as
    objects and have the same hash (a frozen dataclass does), so that they share compiled code.
    """

    @property
    def action_space(self) -> Space[Any] | None:
        """The space of one action, compared with the environments' action space; None if unknown."""
        return None

    def check_params(self, params: Tree) -> None:
        """Raise ValueError for parameters of other sizes than the action's: they could broadcast."""
        return None

    @abstractmethod
    def draw_noise(self, key: jax.Array, T: int, B: int) -> jax.Array:
        """Draw the noise that `sample` needs for a batch, float32 `[T, B, *noise_shape]`."""

    @abstractmethod
    def sample(self, params: Tree, noise: jax.Array) -> jax.Array:
        """Map noise `[..., *noise_shape]` to an action."""

    @abstractmethod
    def mode(self, params: Tree) -> jax.Array:
        """Return the most likely action."""

    @abstractmethod
    def log_prob(self, params: Tree, action: jax.Array) -> jax.Array:
        """Return the log of the probability (density) of `action`, [...]."""

    @abstractmethod
    def entropy(self, params: Tree) -> jax.Array:
        """Return the entropy in nats, [...]."""


@dataclass(frozen=True)
class Categorical(Distribution):
    """Categorical distribution: parameters are unnormalised logits [..., n], actions int32 [...].

    The first action is `start`, as in a Discrete space. A logit of -inf masks an action: it is never drawn
    and adds nothing to the entropy. At least one logit must be finite.

    Raises:
        ValueError: if `n` is less than one.
    """

    n: int
    start: int = 0

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"Categorical: n: expected at least 1 action, got {self.n}")

    @property
    def action_space(self) -> spaces.Discrete:
        """Discrete(n, start=start)."""
        return spaces.Discrete(self.n, start=self.start)

    def check_params(self, params: jax.Array) -> None:
        """Raise ValueError unless there is a logit for each action."""
        if jnp.shape(params)[-1:] != (self.n,):
            raise ValueError(
                f"Categorical: expected logits of shape [..., {self.n}], got {jnp.shape(params)}"
            )

    def draw_noise(self, key: jax.Array, T: int, B: int) -> jax.Array:
        """Draw standard Gumbel noise [T, B, n]."""
        return jax.random.gumbel(key, (T, B, self.n), jnp.float32)

    def sample(self, params: jax.Array, noise: jax.Array) -> jax.Array:
        """Return the argmax of logits plus Gumbel noise (Gumbel 1954; Yellott 1977)."""
        return self.mode(params + noise)

    def mode(self, params: jax.Array) -> jax.Array:
        """Return the action with the largest logit."""
        # Not the default, which depends on whether 64-bit numbers are enabled.
        return jax.lax.argmax(params, params.ndim - 1, jnp.int32) + self.start

    def log_prob(self, params: jax.Array, action: jax.Array) -> jax.Array:
        """Return log p(action), [...]; -inf for a masked action."""
        log_p = jax.nn.log_softmax(params)
        # Selected, not gathered: on a CPU the gradient of a gather is a slow loop. Not multiplied by a
        # one-hot vector: 0 * -inf is NaN.
        chosen = (action - self.start)[..., jnp.newaxis] == jnp.arange(self.n)
        return jnp.where(chosen, log_p, 0.0).sum(-1)

    def entropy(self, params: jax.Array) -> jax.Array:
        """Return -sum p log p, [...]."""
        log_p = jax.nn.log_softmax(params)
        # -inf becomes a huge finite number, cancelled by its probability of zero.
        return -(jnp.exp(log_p) * jnp.maximum(log_p, _LEAST)).sum(-1)


class GaussianParams(NamedTuple):
    """`mean` `[..., *action_shape]`, and `log_std` of the same shape, or `[*action_shape]` for all states."""

    mean: Any
    log_std: Any


@dataclass(frozen=True)
class Gaussian(Distribution):
    """Normal distribution with diagonal covariance over actions of shape `action_shape`.

    Actions are not squashed or clipped: the likelihood belongs to the action as drawn. If a space
    has bounds, cages clip the actions that environments receive.

    Args:
        action_shape: shape of one action; an int n means (n,).

    Raises:
        TypeError: if it is not a shape.
    """

    action_shape: int | Sequence[int]

    def __post_init__(self) -> None:
        # As a tuple of ints, which can be hashed and compared.
        object.__setattr__(
            self, "action_shape", shape_of(self.action_shape, "Gaussian: action_shape")
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return shape_of(self.action_shape, "Gaussian: action_shape")

    @property
    def action_space(self) -> spaces.Box:
        """An unbounded Box of this shape."""
        return spaces.Box(-np.inf, np.inf, self.shape, np.float32)

    def check_params(self, params: GaussianParams) -> None:
        """Raise ValueError unless there is a mean for each number of an action."""
        shape = jnp.shape(params[0])
        if shape[len(shape) - len(self.shape) :] != self.shape:
            size = ", ".join(map(str, ("...", *self.shape)))
            raise ValueError(f"Gaussian: expected means of shape [{size}], got {shape}")

    def draw_noise(self, key: jax.Array, T: int, B: int) -> jax.Array:
        """Draw standard normal noise `[T, B, *action_shape]`."""
        return jax.random.normal(key, (T, B, *self.shape), jnp.float32)

    def sample(self, params: GaussianParams, noise: jax.Array) -> jax.Array:
        """Return mean + std * noise."""
        mean, log_std = params
        action: jax.Array = mean + jnp.exp(log_std) * noise
        return action

    def mode(self, params: GaussianParams) -> jax.Array:
        """Return the mean."""
        mean: jax.Array = params[0]
        return mean

    def log_prob(self, params: GaussianParams, action: jax.Array) -> jax.Array:
        """Return the log of the density, summed over the action's dimensions, [...]."""
        mean, log_std = params
        # Scaled before squaring: a variance would leave the range of float32 at half the exponent.
        scaled = (action - mean) * jnp.exp(-log_std)
        return self._sum(-0.5 * scaled * scaled - log_std - _HALF_LOG_TWO_PI)

    def entropy(self, params: GaussianParams) -> jax.Array:
        """Return the sum over dimensions of log std + log(2 pi e) / 2, [...]."""
        mean, log_std = params
        # A log_std shared by all states has no rows, but every row has an entropy.
        return self._sum(jnp.broadcast_to(log_std + (0.5 + _HALF_LOG_TWO_PI), jnp.shape(mean)))

    def _sum(self, terms: jax.Array) -> jax.Array:
        return jnp.sum(terms, axis=tuple(range(-len(self.shape), 0)))
