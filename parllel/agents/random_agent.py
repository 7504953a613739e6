"""An agent that draws actions from a space, for tests, benchmarks and filling replays."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.agents.agent import ALL_ENVS, Agent, EnvIndices
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.tree import buffer_map
from parllel.envs.space_elements import draw_actions
from parllel.types import State, Tree


class RandomAgent(Agent):
    """Draws every action from `action_space`, as `Space.sample` would.

    The noise of a batch is its actions. Discrete actions are int64; a Dict space gives a named
    tuple, a Tuple space a tuple. Evaluation uses a second generator, so that it does not change
    which actions are sampled.

    Args:
        action_space: Discrete, MultiDiscrete, MultiBinary, Box, Dict or Tuple.
        seed: for both generators.

    Raises:
        TypeError: if the space, or a space inside it, is of any other kind.
    """

    def __init__(self, action_space: spaces.Space[Any], seed: int) -> None:
        self._space = self.action_space = action_space
        # Raises for unsupported spaces.
        draw_actions(action_space, np.random.default_rng(0), (1,))
        # Spawned, because `seed + 1` would be the first generator of an agent with the next seed.
        sampling, evaluation = np.random.SeedSequence(seed).spawn(2)
        self._generators = {
            "sampling": np.random.default_rng(sampling),
            "evaluation": np.random.default_rng(evaluation),
        }
        self._current = "sampling"

    def step(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, noise: Tree = None
    ) -> tuple[Tree, None]:
        """Return `(action, None)`; the action is `noise` if given."""
        if noise is not None:
            return noise, None
        leaves: list[NDArray[Any]] = []
        buffer_map(leaves.append, observation)
        generator = self._generators[self._current]
        return draw_actions(self._space, generator, (len(leaves[0]),), _named), None

    def draw_noise(self, T: int, B: int, *, seed: int | None = None) -> Tree:
        """Return the actions of a batch, leaves [T, B, ...]."""
        generator = self._generators[self._current] if seed is None else np.random.default_rng(seed)
        return draw_actions(self._space, generator, (T, B), _named)

    def sample_mode(self) -> None:
        """Draw from the generator for sampling."""
        self._current = "sampling"

    def eval_mode(self) -> None:
        """Draw from the generator for evaluation."""
        self._current = "evaluation"

    def models(self) -> dict[str, Any]:
        """Return {}, as the agent learns nothing."""
        return {}

    def state(self) -> State:
        """Return the state of both generators, as JSON values."""
        return {name: rng.bit_generator.state for name, rng in self._generators.items()}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        for name, generator in self._generators.items():
            generator.bit_generator.state = state[name]


def _named(parts: dict[str, Tree]) -> Tree:
    return NamedTuple(**parts)
