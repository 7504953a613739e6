"""AEC environments as games whose agents act one after the other."""

from __future__ import annotations

from parllel.distributed.remote.games.pettingzoo_game import PettingZooGame
from parllel.distributed.remote.games.position import FAILED, Position
from parllel.types import Tree


class TurnsGame(PettingZooGame):
    """Let the agents of an AEC environment act in its order; the last that is left is DONE."""

    def start(self, position: Position) -> None:
        """Reset the environment with the seed of the episode."""
        super().start(position)
        self.env.reset(seed=self.seed)
        for number, name in enumerate(self.names):
            self.see(position, number, self.env.observe(name), self.env.infos.get(name))
        self._next(position)

    def drop(self, position: Position, failed: list[int]) -> None:
        """Go on without them, if at least two are left: their actions are played for them."""
        if len(position.left) < 2:
            position.end()
        else:
            self._next(position)

    def step(self, position: Position) -> None:
        """Step the environment with the action of the one whose turn it is."""
        (mover,) = position.active
        self._act(position, self.chosen[mover])
        self._next(position)

    def _act(self, position: Position, action: Tree) -> None:
        env = self.env
        env.step(action)
        for number, name in enumerate(self.names):
            if name in env.rewards:
                flags = (env.terminations[name], env.truncations[name])
                self.pay(position, number, env.rewards[name], flags)

    def _next(self, position: Position) -> None:
        """Let the agent act that the environment has selected; pass over those that cannot."""
        env = self.env
        while env.agents and position.left:
            selected = env.agent_selection
            number = self.names.index(selected)
            if env.terminations[selected] or env.truncations[selected]:
                env.step(None)  # as its interface wants it
            elif position.seats[number].status in FAILED:
                self.see(position, number, env.observe(selected), env.infos.get(selected))
                self._act(position, self.absent_action(number))
            else:
                position.turn(number)
                break
        for number, name in enumerate(self.names):
            # Those that act next, and what those saw last whose part is over.
            if name in env.agents and position.seats[number].status in ("ACTIVE", "DONE"):
                self.see(position, number, env.observe(name), env.infos.get(name))
