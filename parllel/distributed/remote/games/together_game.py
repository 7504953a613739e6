"""Parallel environments as games whose agents act at the same time."""

from __future__ import annotations

from parllel.distributed.remote.games.pettingzoo_game import PettingZooGame
from parllel.distributed.remote.games.position import Position


class TogetherGame(PettingZooGame):
    """Let all agents of a parallel environment act in each step; the last that is left plays on as well."""

    def start(self, position: Position) -> None:
        """Reset the environment with the seed of the episode."""
        super().start(position)
        observations, infos = self.env.reset(seed=self.seed)
        for number, name in enumerate(self.names):
            self.see(position, number, observations[name], infos.get(name))

    def drop(self, position: Position, failed: list[int]) -> None:
        """Go on without them: their actions are played for them."""

    def step(self, position: Position) -> None:
        """Step the environment with the actions of all."""
        env = self.env
        acting = [(number, name) for number, name in enumerate(self.names) if name in env.agents]
        acted = set(position.active)
        for number in acted:
            position.seats[number].info = {}
        actions = {
            name: self.chosen[number] if number in acted else self.absent_action(number)
            for number, name in acting
        }
        observations, rewards, terminations, truncations, infos = env.step(actions)
        for number, name in acting:
            self.pay(position, number, rewards[name], (terminations[name], truncations[name]))
            if position.seats[number].reward is not None:
                self.see(position, number, observations[name], infos.get(name))
