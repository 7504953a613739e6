"""Agents that ignore observations: random actions, and no-ops.

They decide as the policies "random" and "noop" of `parllel.policies`, but do not import it: their workers
start in little more time than the import of Gymnasium takes.
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
    """Draws each action from the action space, as `RandomPolicy` does for the same episode seed.

    A player of a game draws from the legal actions if the game lists them.
    """

    def __init__(self) -> None:
        self._space: gym.Space[Any] | None = None
        self._generator = np.random.default_rng()

    def bind(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> None:
        """Set the spaces. Raises TypeError for an action space without a fixed size."""
        if action_space is not None:
            # A trial draw: an unsupported space fails here, not in the first step.
            draw_actions(action_space, np.random.default_rng(0), ())
        self._space = action_space

    def reset(self, seed: int | None) -> None:
        """Restart the random stream from the seed of an episode; None continues it."""
        if seed is not None:
            self._generator = Seeds(seed).generator("actions")

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Return an action determined by the seed."""
        legal = info.get("legal_actions")
        if legal:
            return Decision(legal[int(self._generator.integers(len(legal)))])
        return Decision(draw_actions(_known(self._space, "random"), self._generator, ()))


class NoopWorkerAgent(WorkerAgent):
    """Chooses zeros, or the values of the action space nearest to zero.

    If that action is illegal, a player of a game chooses the first legal action.
    """

    def __init__(self) -> None:
        self._space: gym.Space[Any] | None = None
        self._action: Any = None

    def bind(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> None:
        """Set the spaces. Raises TypeError for an action space without a fixed size."""
        self._space = action_space
        self._action = None if action_space is None else zero_of(action_space)

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Return the same action every time."""
        legal = info.get("legal_actions")
        if legal and self._action not in legal:
            return Decision(legal[0])
        _known(self._space, "noop")
        return Decision(self._action)


def _known(space: gym.Space[Any] | None, name: str) -> gym.Space[Any]:
    if space is None:
        raise TypeError(f"{name}: expected an action space to choose from, got None")
    return space
