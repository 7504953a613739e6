"""Games whose players act one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parllel.distributed.operators.games.game import Game
from parllel.envs.rewards import reward_of
from parllel.types import Tree


class SequentialGame(Game):
    """An AEC environment: its own order says who acts, and players whose part is over are passed over."""

    def reset(self, seed: int) -> None:
        """Begin an episode."""
        self.env.reset(seed=seed)
        self.flags = dict.fromkeys(self.players, (False, False))
        self._pass_over()

    def turn(self) -> list[str]:
        """Return the player who acts now."""
        return [self.env.agent_selection] if self.env.agents else []

    def step(self, actions: Mapping[str, Tree]) -> dict[str, float]:
        """Play the action, and return what each player got for it."""
        env = self.env
        (action,) = actions.values()
        env.step(action)
        # Before those whose part is over leave.
        rewards = {name: reward_of(reward, name) for name, reward in env.rewards.items()}
        for name in self.players:
            if name in env.terminations:
                self.flags[name] = (bool(env.terminations[name]), bool(env.truncations[name]))
        self._pass_over()
        return rewards

    def _pass_over(self) -> None:
        env = self.env
        while env.agents and (
            env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        ):
            env.step(None)  # as the interface wants it

    def _current(self, player: str) -> tuple[Tree, Any]:
        return self.env.observe(player), self.env.infos.get(player)
