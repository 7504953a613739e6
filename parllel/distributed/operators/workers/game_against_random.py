"""Turn-based game as a single-player environment, for workers in batch mode."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from parllel.distributed.operators.games.game_questions import GameQuestions
from parllel.envs.multi_agent_game import game_of
from parllel.seeding import Seeds
from parllel.types import Tree


class GameAgainstRandom(gym.Env[Any, Any]):
    """One seat of a game; the other seats play random legal moves.

    The seed determines the seat: with two players, the first one for even seeds. Info contains what a player
    of a game receives ("legal_actions", "text", and more depending on the game), and at the end of an episode
    "is_success".

    Args:
        env: an AEC environment whose players have equal spaces. `close` closes it.
    """

    def __init__(self, env: Any) -> None:
        self._game = game_of(env)
        self._questions = GameQuestions(self._game)
        first = self._game.players[0]
        self.observation_space = env.observation_space(first)
        self.action_space = env.action_space(first)
        self.metadata = env.metadata
        self.render_mode = env.render_mode
        self._seat = first
        self._generator = np.random.default_rng(0)
        self._total = 0.0
        self._seen: Tree = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tree, dict[str, Any]]:
        """Start an episode. Without a seed, one is drawn."""
        super().reset(seed=seed)
        episode = int(self.np_random.integers(2**32)) if seed is None else seed
        self._seat = self._game.players[episode % len(self._game.players)]
        self._generator = Seeds(episode).generator("others")
        self._total = 0.0
        self._game.reset(episode)
        self._let_others_move()
        return self._observation()

    def step(self, action: Any) -> tuple[Tree, float, bool, bool, dict[str, Any]]:
        """Play a move, and the other players' moves until it is this player's turn again."""
        reward = self._game.step({self._seat: action}).get(self._seat, 0.0)
        reward += self._let_others_move()
        self._total += reward
        terminated, truncated = self._game.flags[self._seat]
        observation, info = self._observation()
        if terminated or truncated:
            info["is_success"] = self._total > 0
        return observation, reward, terminated, truncated, info

    def _let_others_move(self) -> float:
        """Play the others' moves and return this player's reward for them."""
        reward = 0.0
        while (movers := self._game.turn()) and movers != [self._seat]:
            self._game.observe(movers[0])
            action = self._questions.draw_action(movers[0], self._generator)
            reward += self._game.step({movers[0]: action}).get(self._seat, 0.0)
        return reward

    def _observation(self) -> tuple[Tree, dict[str, Any]]:
        if not self._game.turn():
            return self._game.env.observe(self._seat), {}
        seen = self._questions.seen(self._seat)
        info = {"legal_actions": seen.legal, "text": seen.text, **seen.info}
        return self._game.env.observe(self._seat), info

    def render(self) -> Any:
        """Return a picture if the game renders any."""
        return self._game.env.render()

    def close(self) -> None:
        """Close the game."""
        self._game.close()
