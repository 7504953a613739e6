"""Policy-gradient agent for any action distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from parllel.agents.agent import ALL_ENVS, Agent, EnvIndices
from parllel.algos.arguments import check_not_seeds
from parllel.buffers.named_tuple import NamedTuple as Node
from parllel.errors import UnusableDeviceError
from parllel.jax.compilation import kept
from parllel.jax.distributions import Distribution
from parllel.jax.model import Model, output_of
from parllel.jax.named_arrays import named_arrays, tree_of
from parllel.types import State, Tree, class_path


class PgAgent(Agent):
    """Policy-gradient agent: samples actions from a distribution parameterised by a model.

    The agent starts in sample mode. Its info is `value` [N] and `log_prob` [N] of the action. A step is one
    call of compiled code. Keyword arguments that a handler adds are passed on to the model.

    Args:
        model: a `PgModel`, or a `Model` of your own function. Its parameters are moved to `device`.
        distribution: the action distribution, which takes the model's `params`.
        seed: seed of all noise.
        device: kind of device on which the model runs, as in `jax.devices(device)`; its first is used.

    Raises:
        TypeError: if `model` is not a Model, or `distribution` not a Distribution.
        UnusableDeviceError: for a device that JAX cannot use on this machine. A ValueError.
    """

    def __init__(
        self, model: Model, distribution: Distribution, *, seed: int, device: str = "cpu"
    ) -> None:
        for name, value, kind in (
            ("model", model, Model),
            ("distribution", distribution, Distribution),
        ):
            if not isinstance(value, kind):
                hint = "; call it" if isinstance(value, type) else ""
                raise TypeError(
                    f"PgAgent: {name}: expected a {kind.__name__} of parllel.jax, got {value!r}{hint}"
                )
        check_not_seeds("PgAgent", seed)
        self.device = usable_device(device, "PgAgent")
        model.parameters = jax.device_put(model.parameters, self.device)
        self._model, self._distribution = model, distribution
        self.action_space = distribution.action_space
        self.steps = steps_of(model.apply, distribution)
        self._key = _key_of(seed)
        self._evaluating = False

    @property
    def model(self) -> Model:
        """The model, which cannot be exchanged."""
        return self._model

    @property
    def distribution(self) -> Distribution:
        """The action distribution."""
        return self._distribution

    def __repr__(self) -> str:
        name, n = type(self.model).__name__, self.model.n_parameters
        return f"{type(self).__name__}({name}, {n:,} parameters, {self.device.platform})"

    def step(
        self,
        observation: Tree,
        *,
        env_indices: EnvIndices = ALL_ENVS,
        noise: Tree = None,
        **inputs: Tree,
    ) -> tuple[jax.Array, Tree]:
        """Return `(action, agent_info)`; in eval mode the action is the distribution's mode."""
        parameters = self._model.parameters
        try:
            if self._evaluating:
                action, value, log_prob = self.steps.best(parameters, observation, inputs)
            else:
                if noise is None:
                    n = len(jax.tree_util.tree_leaves(observation)[0])
                    noise = self._draw(1, n, None)[0]
                action, value, log_prob = self.steps.sample(parameters, observation, noise, inputs)
        except TypeError:
            _check_arrays(observation)
            raise
        return action, Node(value=value, log_prob=log_prob)

    def value(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, **inputs: Tree
    ) -> jax.Array:
        """Return the value estimate [N]."""
        value: jax.Array = self.steps.value(self.model.parameters, observation, inputs)
        return value

    def draw_noise(self, T: int, B: int, *, seed: int | None = None) -> NDArray[np.float32] | None:
        """Draw the noise of a batch, [T, B, ...]. Returns None in eval mode."""
        # Nothing is drawn, so an evaluation does not change the noise of later batches.
        return None if self._evaluating else self._draw(T, B, seed)

    def sample_mode(self) -> None:
        """Draw actions at random."""
        self._evaluating = False

    def train_mode(self) -> None:
        """Draw actions at random."""
        self._evaluating = False

    def eval_mode(self) -> None:
        """Act with the mode of the distribution. No noise is drawn."""
        self._evaluating = True

    def models(self) -> dict[str, Any]:
        """Return `{"model": model}`."""
        return {"model": self.model}

    def state(self) -> State:
        """Return the parameters by name and the key of the noise, as numpy arrays."""
        return {"model": named_arrays(self.model.parameters), "key": self._key.copy()}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if names or shapes of parameters differ from the model's.
        """
        name = type(self.model).__name__
        self.model.parameters = tree_of(
            self.model.parameters, state["model"], self.device, name, "parameters"
        )
        self._key = np.array(state["key"], np.uint32)

    def _draw(self, T: int, B: int, seed: int | None) -> NDArray[np.float32]:
        if seed is not None:
            return np.asarray(self.steps.noise(_key_of(seed), T, B)[1])
        key, noise = self.steps.noise(self._key, T, B)
        self._key = np.array(key)
        return np.asarray(noise)


class Steps(NamedTuple):
    """Compiled functions of an agent.

    Attributes:
        sample: `(parameters, observation, noise, inputs) -> (action, value, log_prob)`, each [N].
        best: `(parameters, observation, inputs)`, the same with the mode of the distribution.
        value: `(parameters, observation, inputs) -> value`.
        noise: `(key, T, B) -> (next key, noise)`; keys are uint32 [2].
    """

    sample: Any
    best: Any
    value: Any
    noise: Any


@kept
def steps_of(apply: Callable[..., Any], distribution: Distribution) -> Steps:
    """Return the compiled functions for a model's function and a distribution."""

    def sample(parameters: Tree, observation: Tree, noise: Tree, inputs: dict[str, Tree]) -> Any:
        params, value = output_of(apply, distribution, parameters, observation, inputs)
        action = distribution.sample(params, noise)
        return action, value, distribution.log_prob(params, action)

    def best(parameters: Tree, observation: Tree, inputs: dict[str, Tree]) -> Any:
        params, value = output_of(apply, distribution, parameters, observation, inputs)
        action = distribution.mode(params)
        return action, value, distribution.log_prob(params, action)

    def value(parameters: Tree, observation: Tree, inputs: dict[str, Tree]) -> Any:
        return output_of(apply, distribution, parameters, observation, inputs).value

    def noise(key: Any, T: int, B: int) -> Any:
        following, used = jax.random.split(jax.random.wrap_key_data(key, impl="threefry2x32"))
        return jax.random.key_data(following), distribution.draw_noise(used, T, B)

    return Steps(
        jax.jit(sample), jax.jit(best), jax.jit(value), jax.jit(noise, static_argnums=(1, 2))
    )


def usable_device(device: str, who: str) -> jax.Device:
    """Return the first device of a kind.

    Raises:
        UnusableDeviceError: if JAX has none on this machine.
        TypeError: for anything but a text.
    """
    if not isinstance(device, str):
        raise TypeError(f"{who}: device: expected a text such as 'cpu' or 'gpu', got {device!r}")
    try:
        found: jax.Device = jax.devices(device)[0]
    except RuntimeError as error:
        why = str(error).partition("\n")[0]
        raise UnusableDeviceError(
            f"{who}: device: expected one that JAX can use on this machine, got {device!r} ({why}); give "
            "device='cpu'"
        ) from None
    return found


def _check_arrays(observation: Tree) -> None:
    """Raise TypeError for observations of another framework."""
    for leaf in jax.tree_util.tree_leaves(observation):
        if not isinstance(leaf, (np.ndarray, np.generic, jax.Array)):
            raise TypeError(
                "PgAgent of parllel.jax: observation: expected arrays of NumPy or JAX, got a "
                f"{class_path(leaf)}. Use NumpyHandler instead of TorchHandler"
            ) from None


def _key_of(seed: int) -> NDArray[np.uint32]:
    # All bits of a seed count, also without 64-bit numbers.
    return np.asarray(np.random.SeedSequence(seed).generate_state(2), np.uint32)
