"""One interface to games of several players, over both of PettingZoo's interfaces (AEC and parallel).

MultiAgentGame   common to both kinds: spaces, legal actions, termination flags
AecGame          players act in turn
ParallelGame     all players act at the same time

PettingZoo's games render with pygame, and their `close` calls `pygame.quit`, which invalidates the fonts of
all other games, even while another thread renders with them. A game that renders is therefore closed only
when no other game of this process renders any more.

    threads that make games    keep_games_open: until the new game is counted
    threads that play them     MultiAgentGame counts as rendering from its constructor to its close
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.envs.pettingzoo_module import action_mask_of
from parllel.envs.rewards import reward_of
from parllel.envs.space_elements import draw_actions, zero_of
from parllel.types import Closeable, Tree


class MultiAgentGame(Closeable, ABC):
    """A PettingZoo environment with either interface, stepped in the same way.

    Args:
        env: the environment, which is closed together with the game.
        name: name of the game for error messages. By default, they name only the player.

    Attributes:
        env: the environment.
        players: names of all players, in the order of the environment.
        flags: whether each player was terminated and whether it was truncated, keyed by player.
        observation_spaces, action_spaces: the spaces, keyed by player.
    """

    def __init__(self, env: Any, name: str | None = None) -> None:
        self.env = env
        self._of = () if name is None else (name,)
        self.players: tuple[str, ...] = tuple(env.possible_agents)
        self.flags: dict[str, tuple[bool, bool]] = {}
        self.observation_spaces: dict[str, gym.Space[Any]] = {
            name: env.observation_space(name) for name in self.players
        }
        self.action_spaces: dict[str, gym.Space[Any]] = {
            name: env.action_space(name) for name in self.players
        }
        self._masks: dict[str, list[int] | None] = {}
        self._closed = False
        if getattr(env, "render_mode", None) is not None:
            with _lock:
                _drawing.add(id(env))

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Begin an episode."""

    @abstractmethod
    def turn(self) -> list[str]:
        """Return the players who act next, in the order of the environment; empty at the end."""

    @abstractmethod
    def step(self, actions: Mapping[str, Tree]) -> dict[str, float]:
        """Play the actions of the players whose turn it is, and return the rewards by player.

        Raises:
            TypeError: for a reward that is not a single number; names the player.
        """

    @abstractmethod
    def _observed(self, player: str) -> tuple[Tree, Any]:
        """Return a player's observation and info."""

    def observe(self, player: str) -> tuple[Tree, list[int] | None]:
        """Return a player's observation and its action mask of 0 and 1, or None without a mask.

        The methods below use this mask until the player is observed again.
        """
        observation, info = self._observed(player)
        mask = self._masks[player] = action_mask_of(observation, info)
        return observation, mask

    def legal_actions(self, player: str) -> list[int] | None:
        """Return the legal actions of a player; None if the game has no mask."""
        space, mask = self.action_spaces[player], self._masks.get(player)
        # Masks of other spaces have no common form, and some games give players without a choice a mask of
        # zeros.
        if mask is None or not isinstance(space, gym.spaces.Discrete) or not any(mask):
            return None
        legal: list[int] = (np.flatnonzero(mask) + int(space.start)).tolist()
        return legal

    def draw_action(self, player: str, generator: np.random.Generator) -> Tree:
        """Draw a random action of a player, a legal one if the game has a mask."""
        legal = self.legal_actions(player)
        if legal is not None:
            return legal[int(generator.integers(len(legal)))]
        return draw_actions(self.action_spaces[player], generator, ())

    def first_action(self, player: str) -> Tree:
        """Return the first legal action, or without a mask zero, clipped to the bounds of the space."""
        legal = self.legal_actions(player)
        return zero_of(self.action_spaces[player]) if legal is None else legal[0]

    def _reward(self, player: str, reward: Any) -> float:
        return reward_of(reward, *self._of, player)

    def close(self) -> None:
        """Close the environment, at the latest with the last game that renders. Idempotent."""
        if self._closed:
            return
        self._closed = True
        with _lock:
            ending = [self.env]
            if id(self.env) in _drawing:
                _drawing.discard(id(self.env))
                _waiting.append(self.env)
                ending = []
                if not _drawing:
                    ending, _waiting[:] = list(_waiting), []
            # The stack closes every environment, even if others raise.
            with ExitStack() as stack:
                for env in ending:
                    stack.callback(env.close)


class AecGame(MultiAgentGame):
    """An AEC environment: players act in its order, and finished players are skipped."""

    def reset(self, seed: int) -> None:
        """Begin an episode."""
        self.env.reset(seed=seed)
        self.flags = dict.fromkeys(self.players, (False, False))

    def turn(self) -> list[str]:
        """Return the player who acts next."""
        env = self.env
        # Here and not in `step`, so that the last observations of finished players stay available until then.
        while env.agents:
            mover = env.agent_selection
            if not (env.terminations[mover] or env.truncations[mover]):
                return [mover]
            env.step(None)  # the AEC interface requires it of finished agents
        return []

    def step(self, actions: Mapping[str, Tree]) -> dict[str, float]:
        """Play the action and return the rewards by player."""
        env = self.env
        (action,) = actions.values()
        env.step(action)
        rewards = {name: self._reward(name, reward) for name, reward in env.rewards.items()}
        for name in self.players:
            if name in env.terminations:
                self.flags[name] = (bool(env.terminations[name]), bool(env.truncations[name]))
        return rewards

    def _observed(self, player: str) -> tuple[Tree, Any]:
        return self.env.observe(player), self.env.infos.get(player)


class ParallelGame(MultiAgentGame):
    """A parallel environment: all remaining players act in each step."""

    def __init__(self, env: Any, name: str | None = None) -> None:
        super().__init__(env, name)
        self._observations: Mapping[str, Tree] = {}
        self._infos: Mapping[str, Any] = {}

    def reset(self, seed: int) -> None:
        """Begin an episode."""
        self._observations, self._infos = self.env.reset(seed=seed)
        self.flags = dict.fromkeys(self.players, (False, False))

    def turn(self) -> list[str]:
        """Return all remaining players."""
        there = set(self.env.agents)
        return [name for name in self.players if name in there]

    def step(self, actions: Mapping[str, Tree]) -> dict[str, float]:
        """Play the actions of all and return the rewards by player."""
        self._observations, rewards, terminations, truncations, self._infos = self.env.step(
            dict(actions)
        )
        for name in actions:
            self.flags[name] = (bool(terminations[name]), bool(truncations[name]))
        return {name: self._reward(name, rewards[name]) for name in actions}

    def _observed(self, player: str) -> tuple[Tree, Any]:
        return self._observations[player], self._infos.get(player)


def game_of(env: Any, name: str | None = None) -> MultiAgentGame:
    """Wrap a PettingZoo environment as a game, which owns and closes it.

    name: name of the game for error messages. By default, they name only the player.
    """
    # Only AEC environments have this attribute, and wrappers forward it.
    return AecGame(env, name) if hasattr(env, "agent_iter") else ParallelGame(env, name)


def with_render_mode(env: Any, make: Callable[..., Any], modes: Sequence[str]) -> Any:
    """Return an environment that renders: `env`, or a new one if it could render but does not.

    make: called with `render_mode`, the first of `modes` in the environment's metadata.
    """
    known = (getattr(env, "metadata", None) or {}).get("render_modes") or ()
    mode = next((mode for mode in modes if mode in known), None)
    if mode is None or getattr(env, "render_mode", None) is not None:
        return env
    env.close()
    return make(render_mode=mode)


# Reentrant: a game that is rejected after it was made is closed within `keep_games_open`.
_lock = threading.RLock()
_drawing: set[int] = set()  # ids of the environments of open games
_waiting: list[Any] = []  # environments to close with the last of these


@contextmanager
def keep_games_open() -> Iterator[None]:
    """Delay closing of games while one is made, because `pygame.quit` would destroy its fonts."""
    with _lock:
        yield
