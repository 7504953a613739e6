"""Agents that see nothing: random actions, and doing nothing.

They decide as `parllel.policies` does for "random" and "noop", without importing it: their worker starts in
little more than gymnasium takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.distributed.operators.workers.worker_agent import Decision, WorkerAgent
from parllel.envs.space_elements import draw_actions, zero_of
from parllel.seeding import Seeds


class RandomWorkerAgent(WorkerAgent):
    """Draw each action from the action space, as `RandomPolicy` does in the episode of the same seed.

    A player draws from the legal actions, where the game names them.
    """

    def __init__(self) -> None:
        self._space: gym.Space[Any] | None = None
        self._generator = np.random.default_rng()

    def bind(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> None:
        """Learn the spaces; raise TypeError for an action space of no fixed size."""
        if action_space is not None:
            # An unknown space is refused here, not in the first step.
            draw_actions(action_space, np.random.default_rng(0), ())
        self._space = action_space

    def reset(self, seed: int | None) -> None:
        """Draw from the seed of an episode from here on; None goes on drawing."""
        if seed is not None:
            self._generator = Seeds(seed).generator("actions")

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Return an action that follows from the seed alone."""
        legal = info.get("legal_actions")
        if legal:
            return Decision(legal[int(self._generator.integers(len(legal)))])
        return Decision(draw_actions(_known(self._space, "random"), self._generator, ()))


class NoopWorkerAgent(WorkerAgent):
    """Choose zeros, or the numbers of the action space that are nearest to them.

    A player chooses the first legal action where that one is not legal.
    """

    def __init__(self) -> None:
        self._space: gym.Space[Any] | None = None
        self._action: Any = None

    def bind(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> None:
        """Learn the spaces; raise TypeError for an action space of no fixed size."""
        self._space = action_space
        self._action = None if action_space is None else zero_of(action_space)

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Return the same action always."""
        legal = info.get("legal_actions")
        if legal and self._action not in legal:
            return Decision(legal[0])
        _known(self._space, "noop")
        return Decision(self._action)


def _known(space: gym.Space[Any] | None, name: str) -> gym.Space[Any]:
    if space is None:
        raise TypeError(f"{name}: expected an action space to choose from, got None")
    return space
