"""Models saved by CleanRL as policies.

CleanRL's `ppo.py` and `ppo_continuous_action.py` save the state dict of their agent: two networks of three
linear layers with tanh in between.

    ppo.py                      critic.{0,2,4}.{weight,bias}
                                actor.{0,2,4}.{weight,bias}: logits of a Discrete
    ppo_continuous_action.py    critic.{0,2,4}.{weight,bias}
                                actor_mean.{0,2,4}.{weight,bias}: means of a Box
                                actor_logstd [1, n]: logarithms of the standard deviations
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.policies.policy import Policy
from parllel.seeding import Seeds
from parllel.types import Tree

_LAYERS = (0, 2, 4)  # of torch's Sequential; 1 and 3 are tanh
_PARTS = tuple(f"{layer}.{part}" for layer in _LAYERS for part in ("weight", "bias"))
_SAVED = "a model of CleanRL's ppo.py or ppo_continuous_action.py"


class CleanRlPolicy(Policy):
    """Policy that runs a CleanRL model and samples actions like CleanRL's own evaluation.

    Each environment samples with its own generator, seeded by its episode.

    Args:
        weights: arrays keyed by their names in the state dict.
        observation_space: a Box, which is flattened.
        action_space: Discrete or Box.
        greedy: choose the most probable action, or the mean, instead of sampling.
        title: name of the model in error messages.

    Raises:
        ValueError: if the weights do not belong to such a model, or do not fit the spaces.
    """

    def __init__(
        self,
        weights: Mapping[str, NDArray[Any]],
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        greedy: bool = False,
        title: str = "model",
    ) -> None:
        self.is_continuous = check_names(weights, title)
        self.observation_space, self.action_space = observation_space, action_space
        n_inputs, n_outputs = _sizes(observation_space, action_space, self.is_continuous, title)
        actor = "actor_mean" if self.is_continuous else "actor"
        self._layers = _layers(weights, actor, n_inputs, n_outputs, title)
        _layers(weights, "critic", n_inputs, 1, title)
        self._std: NDArray[Any] | None = None
        if self.is_continuous:
            self._std = np.exp(_checked(weights, "actor_logstd", (1, n_outputs), title)[0])
        self._greedy = greedy
        self._space: Any = action_space
        self._generators: dict[int, np.random.Generator] = {}

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        greedy: bool = False,
    ) -> CleanRlPolicy:
        """Load the policy from a file. Also raises as `read_state_dict`."""
        from parllel.torch.state_dict_file import read_state_dict

        weights = read_state_dict(path)
        return cls(weights, observation_space, action_space, greedy=greedy, title=os.fspath(path))

    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return the actions [N, ...] for observations [N, ...]."""
        # One row at a time: float32 matrix products of several rows round differently.
        pairs = zip(np.asarray(observation), env_indices, strict=True)
        return np.stack([self._act_one(seen, int(number)) for seen, number in pairs])

    def outputs(self, observation: Any) -> NDArray[np.float32]:
        """Return the logits, or the means, for one observation."""
        *hidden, (weight, bias) = self._layers
        row: NDArray[Any] = np.asarray(observation, np.float32).reshape(-1)
        for inner_weight, inner_bias in hidden:
            row = np.tanh(inner_weight @ row + inner_bias)
        found: NDArray[np.float32] = weight @ row + bias
        return found

    def _act_one(self, observation: Any, number: int) -> Any:
        found = self.outputs(observation)
        generator = self._generator(number)
        if self._std is None:
            index = int(found.argmax()) if self._greedy else _drawn(found, generator)
            return self._space.dtype.type(self._space.start + index)
        if not self._greedy:
            found += self._std * generator.standard_normal(len(found), np.float32)
        shaped = found.reshape(self._space.shape)
        return np.clip(shaped, self._space.low, self._space.high).astype(self._space.dtype)

    def _generator(self, number: int) -> np.random.Generator:
        if number not in self._generators:
            self._generators[number] = np.random.default_rng()
        return self._generators[number]

    def reset(
        self,
        env_indices: Sequence[int] | NDArray[np.intp] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> None:
        """Seed the environments' generators for new episodes. Without seeds, they continue."""
        if env_indices is None or seeds is None:
            return
        for number, seed in zip(env_indices, seeds, strict=True):
            if seed is not None:
                self._generators[int(number)] = Seeds(seed).generator("actions")


def check_names(weights: Mapping[str, Any], title: str) -> bool:
    """Return whether the weights are those of the continuous model.

    Raises:
        ValueError: if they belong to neither model.
    """
    found = set(weights)
    critic = {f"critic.{part}" for part in _PARTS}
    if found == critic | {f"actor.{part}" for part in _PARTS}:
        return False
    if found == critic | {f"actor_mean.{part}" for part in _PARTS} | {"actor_logstd"}:
        return True
    shown = ", ".join(sorted(found)[:4]) or "none"
    raise ValueError(f"{title}: expected {_SAVED}, got {len(found)} weights: {shown}, ...")


def _sizes(
    observation_space: gym.Space[Any], action_space: gym.Space[Any], is_continuous: bool, title: str
) -> tuple[int, int]:
    """Return the sizes of the model's input and output."""
    box = gym.spaces.Box
    if not isinstance(observation_space, box):
        raise ValueError(f"{title}: expected a Box as observation space, got {observation_space}")
    expected = box if is_continuous else gym.spaces.Discrete
    if not isinstance(action_space, expected):
        script = "ppo_continuous_action.py" if is_continuous else "ppo.py"
        raise ValueError(
            f"{title}: a model of {script} acts in a {expected.__name__}, but the action space of the "
            f"environment is {action_space}"
        )
    n_outputs = math.prod(action_space.shape) if is_continuous else int(action_space.n)  # type: ignore
    return math.prod(observation_space.shape), n_outputs


def _layers(
    weights: Mapping[str, NDArray[Any]], network: str, n_inputs: int, n_outputs: int, title: str
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Return weight [n_out, n_in] and bias [n_out] of each layer, with their shapes checked."""
    widths = [n_inputs]
    for layer in _LAYERS[:-1]:
        shape = np.shape(weights[f"{network}.{layer}.weight"])
        widths.append(shape[0] if shape else 0)
    widths.append(n_outputs)
    return [
        (
            _checked(weights, f"{network}.{layer}.weight", (n_out, n_in), title),
            _checked(weights, f"{network}.{layer}.bias", (n_out,), title),
        )
        for layer, (n_in, n_out) in zip(_LAYERS, pairwise(widths), strict=True)
    ]


def _checked(
    weights: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...], title: str
) -> NDArray[np.float32]:
    found = np.asarray(weights[name])
    if found.shape != shape or found.dtype.kind != "f":
        raise ValueError(
            f"{title}: {name}: expected float32 {list(shape)} for this environment, got {found.dtype} "
            f"{list(found.shape)}"
        )
    if not np.isfinite(found).all():
        raise ValueError(f"{title}: {name}: contains values that are not finite")
    return found.astype(np.float32)


def _drawn(logits: NDArray[np.float32], generator: np.random.Generator) -> int:
    """Sample an index with probabilities softmax(logits)."""
    exponents = np.exp(logits.astype(np.float64) - logits.max())
    below = np.cumsum(exponents)
    index = np.searchsorted(below, generator.random() * below[-1], side="right")
    return min(int(index), len(logits) - 1)  # the product can round up to the total
