"""Games whose players act at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parllel.distributed.operators.games.game import Game
from parllel.envs.rewards import reward_of
from parllel.types import Tree


class SimultaneousGame(Game):
    """A parallel environment: in each step all act who are still there."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._observations: Mapping[str, Tree] = {}
        self._infos: Mapping[str, Any] = {}

    def reset(self, seed: int) -> None:
        """Begin an episode."""
        self._observations, self._infos = self.env.reset(seed=seed)
        self.flags = dict.fromkeys(self.players, (False, False))

    def turn(self) -> list[str]:
        """Return all players who are still there."""
        there = set(self.env.agents)
        return [name for name in self.players if name in there]

    def step(self, actions: Mapping[str, Tree]) -> dict[str, float]:
        """Play the actions of all, and return what each got."""
        self._observations, rewards, terminations, truncations, self._infos = self.env.step(
            dict(actions)
        )
        for name in actions:
            self.flags[name] = (bool(terminations[name]), bool(truncations[name]))
        return {name: reward_of(rewards[name], name) for name in actions}

    def _current(self, player: str) -> tuple[Tree, Any]:
        return self._observations[player], self._infos.get(player)
