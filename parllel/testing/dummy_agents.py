"""Agents whose outputs can be computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.agents.agent import ALL_ENVS, Agent, EnvIndices
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.tree import buffer_leaves
from parllel.types import State, Tree

DRAWS = 1000  # noise is an integer below this


class CountingAgent(Agent):
    """Agent whose actions are computed from a `fingerprint` of the observation and from noise.

    The value is the fingerprint; the action is `(floor(fingerprint) + noise) % n_actions`, in eval mode with
    a noise of 0. Agent info is `value` [N] float32 and `draw` [N] int32, the noise.

    Args:
        n_actions: of the Discrete action space.
        seed: of the generator of the noise, which evaluation must leave alone.
    """

    def __init__(self, n_actions: int, seed: int = 0) -> None:
        self.n_actions = n_actions
        self.mode = "sample"
        self.closed = 0
        self._generator = np.random.default_rng(seed)

    def step(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, noise: Tree = None
    ) -> tuple[Tree, Tree]:
        """Return `(action, agent_info)`; without noise given, sample mode draws its own."""
        value = fingerprint(observation)
        if noise is None:
            drawing = self.mode == "sample"
            noise = self._draw(1, len(value))[0] if drawing else np.zeros(len(value), np.int32)
        # Whole numbers, so that rounding in another dtype cannot change the action.
        action = (np.floor(value).astype(np.int64) + noise) % self.n_actions
        return action, NamedTuple(value=value.astype(np.float32), draw=noise)

    def value(self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS) -> Tree:
        """Return the fingerprint [N] as float32."""
        return fingerprint(observation).astype(np.float32)

    def draw_noise(self, T: int, B: int, *, seed: int | None = None) -> Tree:
        """Draw the noise of a batch, [T, B]."""
        return self._draw(T, B, seed)

    def _draw(self, T: int, B: int, seed: int | None = None) -> NDArray[np.int32]:
        generator = self._generator if seed is None else np.random.default_rng(seed)
        return generator.integers(0, DRAWS, (T, B), dtype=np.int32)

    def sample_mode(self) -> None:
        """Use noise from now on."""
        self.mode = "sample"

    def train_mode(self) -> None:
        """Use no noise from now on."""
        self.mode = "train"

    def eval_mode(self) -> None:
        """Use no noise from now on."""
        self.mode = "eval"

    def models(self) -> dict[str, Any]:
        """Return {}: there is nothing to train."""
        return {}

    def state(self) -> State:
        """Return the state of the generator, as JSON values."""
        return {"generator": self._generator.bit_generator.state}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._generator.bit_generator.state = state["generator"]

    def close(self) -> None:
        """Count the calls in `closed`."""
        self.closed += 1


class RecurrentCountingAgent(CountingAgent):
    """CountingAgent that remembers one number per environment, and the previous action.

    With `m` remembered, 0 at first, value and action are those of CountingAgent with `m` added to the
    fingerprint, and the action with the previous action added; then `m` becomes
    `(2 m + floor(fingerprint)) % 16`.
    Agent info has `prev_action` [N] too.

    Args:
        n_actions, seed: see `CountingAgent`.
        n_envs: number of environments.
    """

    recurrent = True

    def __init__(self, n_actions: int, seed: int = 0, *, n_envs: int) -> None:
        super().__init__(n_actions, seed)
        # Memory of evaluations, and of sampling, which evaluations must not change.
        self.remembered = {key: np.zeros(n_envs) for key in (True, False)}
        self.previous = {key: np.zeros(n_envs, np.int64) for key in (True, False)}

    def step(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, noise: Tree = None
    ) -> tuple[Tree, Tree]:
        """Return `(action, agent_info)` and remember."""
        memory = self.remembered[self.mode == "eval"]
        previous = self.previous[self.mode == "eval"]
        seen = fingerprint(observation)
        value = seen + memory[env_indices]
        # Copied, as indexing by a slice gives a view, which changes below.
        before = previous[env_indices].copy()
        if noise is None:
            drawing = self.mode == "sample"
            noise = self._draw(1, len(value))[0] if drawing else np.zeros(len(value), np.int32)
        action = (np.floor(value).astype(np.int64) + noise + before) % self.n_actions
        # It depends on the order of what was seen, so a step that is left out, or done twice, shows in all
        # that follow. Numbers below 16 are exact in float32.
        memory[env_indices] = (2 * memory[env_indices] + np.floor(seen)) % 16
        previous[env_indices] = action
        return action, NamedTuple(value=value.astype(np.float32), draw=noise, prev_action=before)

    def value(self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS) -> Tree:
        """Return the fingerprint plus the remembered number, [N] float32."""
        memory = self.remembered[self.mode == "eval"]
        return (fingerprint(observation) + memory[env_indices]).astype(np.float32)

    def state(self) -> State:
        """Return the state of the generator and the memory of sampling."""
        # That of evaluations is left out, as each of them begins by clearing it.
        memory = {"remembered": self.remembered[False], "previous": self.previous[False]}
        return {**super().state(), **{name: array.copy() for name, array in memory.items()}}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        super().load_state(state)
        self.remembered[False][:] = state["remembered"]
        self.previous[False][:] = state["previous"]

    def initial_rnn_state(self, env_indices: EnvIndices) -> Tree:
        """Return the remembered numbers, [N] float32."""
        return self.remembered[self.mode == "eval"][env_indices].astype(np.float32)

    def reset(self) -> None:
        """Clear the memory of all environments in the current mode."""
        self.reset_one(ALL_ENVS)

    def reset_one(self, env_indices: EnvIndices) -> None:
        """Clear the memory of some environments, in the current mode."""
        self.remembered[self.mode == "eval"][env_indices] = 0
        self.previous[self.mode == "eval"][env_indices] = 0


def fingerprint(observation: Tree) -> NDArray[np.float64]:
    """Return a number for each observation, [N] from leaves [N, ...].

    All numbers of an observation, leaf after leaf, are added up with the weights 1, 2, 3, ... For those of
    `CountingEnv` the sum is exact in float32.
    """
    # With a weight for each number, as a plain sum would not show that two have changed places.
    total: Any = 0.0
    weight = 0
    for _, leaf in buffer_leaves(observation):
        numbers = np.asarray(leaf, np.float64)
        numbers = numbers.reshape(len(numbers), -1)
        # Number by number: a sum over an axis may round differently for another N.
        for i in range(numbers.shape[1]):
            weight += 1
            total = total + weight * numbers[:, i]
    return np.asarray(total)
