"""Feed-forward policy and value model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from parllel.algos.arguments import shape_of
from parllel.jax.distributions import Categorical, Gaussian, GaussianParams
from parllel.jax.model import Model, PgOutput

Activation: TypeAlias = Literal["tanh", "relu"]
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu}
# As in the PPO implementations that results are compared with (Huang et al. 2022, detail 2). It suits both.
_HIDDEN_GAIN = math.sqrt(2)
# Names of parameters, as in `parllel.torch.PgModel`.
_SHARED, _POLICY, _CRITIC, _LOG_STD = "encoder", "policy", "critic", "head.log_std"


class PgModel(Model):
    """Separate fully connected networks for policy and value, optionally after shared layers.

    Weights are orthogonal (Saxe et al. 2014) with gain sqrt(2) in hidden layers, `policy_gain` in the last
    layer of the policy and 1 in that of the value; biases are zero. Names, shapes and meaning of the
    parameters are those of `parllel.torch.PgModel`, so each loads the weights of the other.

    Args:
        observation_shape: shape of one observation; an int n means (n,). Dimensions are flattened, and
            integers become float32.
        distribution: the action distribution whose parameters the policy returns. The log standard
            deviation of a Gaussian is a parameter of the model, the same in all states.
        hidden_sizes: units of each hidden layer in both networks; may be empty.
        seed: seed of the initial weights.
        shared_sizes: units of layers before both networks; may be empty.
        initial_log_std: initial log standard deviation of a Gaussian.
        policy_gain: with 0, the untrained policy is the same in all states.
        activation: "tanh" or "relu", applied after each hidden and shared layer.

    Raises:
        ValueError: if a size is less than one, or for an unknown activation.
        TypeError: for a distribution that is neither Categorical nor Gaussian; give a `Model` your function.
    """

    def __init__(
        self,
        observation_shape: int | Sequence[int],
        distribution: Categorical | Gaussian,
        hidden_sizes: Sequence[int],
        seed: int,
        *,
        shared_sizes: Sequence[int] = (),
        initial_log_std: float = 0.0,
        policy_gain: float = 0.01,
        activation: Activation = "tanh",
    ) -> None:
        if not isinstance(distribution, (Categorical, Gaussian)):
            raise TypeError(
                f"PgModel: distribution: expected a Categorical or a Gaussian, got {distribution!r}; give a "
                "Model your own function and parameters"
            )
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"PgModel: activation: expected one of {list(ACTIVATIONS)}, got {activation!r}"
            )
        n_inputs = math.prod(shape_of(observation_shape, "PgModel: observation_shape"))
        shared, hidden = tuple(shared_sizes), tuple(hidden_sizes)
        n_outputs = _n_outputs(distribution)
        if min((n_inputs, *shared, *hidden, n_outputs)) < 1:
            raise ValueError(
                f"PgModel: every size must be at least 1, got {[n_inputs, *shared, *hidden, n_outputs]}"
            )
        generator = np.random.default_rng(seed)
        parameters = dict(_layers(_SHARED, (n_inputs, *shared), _HIDDEN_GAIN, generator))
        n_features = (n_inputs, *shared)[-1]
        for name, n, gain in ((_POLICY, n_outputs, policy_gain), (_CRITIC, 1, 1.0)):
            parameters.update(_layers(name, (n_features, *hidden, n), gain, generator))
        if isinstance(distribution, Gaussian):
            # A logarithm, so that any value is valid.
            log_std = np.full(distribution.shape, initial_log_std, np.float32)
            parameters[_LOG_STD] = log_std
        super().__init__(_Networks(len(shared), len(hidden), activation, distribution), parameters)


@dataclass(frozen=True)
class _Networks:
    """The function of a PgModel. Equal for models of equal form, which then share compiled code."""

    n_shared: int
    n_hidden: int
    activation: str
    distribution: Categorical | Gaussian

    def __call__(self, parameters: dict[str, jax.Array], observation: Any) -> PgOutput:
        x = jnp.reshape(observation, (len(observation), -1)).astype(jnp.float32)
        for i in range(self.n_shared):
            x = self._activated(parameters, f"{_SHARED}.layers.{i}", x)
        outputs, value = (self._network(parameters, name, x) for name in (_POLICY, _CRITIC))
        params: Any = outputs
        if isinstance(self.distribution, Gaussian):
            mean = outputs.reshape((-1, *self.distribution.shape))
            params = GaussianParams(mean, parameters[_LOG_STD])
        return PgOutput(params, value.squeeze(-1))

    def _network(self, parameters: dict[str, jax.Array], name: str, x: jax.Array) -> jax.Array:
        for i in range(self.n_hidden):
            x = self._activated(parameters, f"{name}.layers.{i}", x)
        return _linear(parameters, f"{name}.layers.{self.n_hidden}", x)

    def _activated(self, parameters: dict[str, jax.Array], name: str, x: jax.Array) -> jax.Array:
        return ACTIVATIONS[self.activation](_linear(parameters, name, x))


def _linear(parameters: dict[str, jax.Array], name: str, x: jax.Array) -> jax.Array:
    return x @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]


def _n_outputs(distribution: Categorical | Gaussian) -> int:
    if isinstance(distribution, Categorical):
        return distribution.n
    return math.prod(distribution.shape)


def _layers(
    name: str, sizes: Sequence[int], last_gain: float, generator: np.random.Generator
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield weights [n_outputs, n_inputs] and biases by name."""
    last = len(sizes) - 2
    for i, (n_inputs, n_outputs) in enumerate(pairwise(sizes)):
        gain = last_gain if i == last else _HIDDEN_GAIN
        yield f"{name}.layers.{i}.weight", _orthogonal(n_outputs, n_inputs, gain, generator)
        yield f"{name}.layers.{i}.bias", np.zeros(n_outputs, np.float32)


def _orthogonal(
    n_rows: int, n_columns: int, gain: float, generator: np.random.Generator
) -> NDArray[np.float32]:
    """Return a matrix with orthonormal rows or columns, whichever are fewer, times `gain`."""
    tall = generator.normal(size=(max(n_rows, n_columns), min(n_rows, n_columns)))
    q, r = np.linalg.qr(tall)
    # With these signs the matrix is uniformly distributed (Mezzadri 2007).
    q *= np.sign(np.diag(r))
    return np.asarray(gain * (q if n_rows >= n_columns else q.T), np.float32)
