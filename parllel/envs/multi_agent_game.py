"""Games of several players, with whichever of PettingZoo's two interfaces the environment has.

MultiAgentGame   what both kinds have in common: spaces, legal actions, the parts that are over
AecGame          one player acts after the other
ParallelGame     all act at the same time

Games of PettingZoo draw with pygame, and their `close` calls `pygame.quit`, which takes the fonts of all
others with it: in the middle of a picture, if these draw in other threads. A game that draws is therefore
closed only when no other game of this process draws any more.

    threads that make games    keep_games_open: until the new one counts
    threads that play them     MultiAgentGame counts as drawing from its constructor to its close
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
    """One environment of PettingZoo's interface, stepped in one way whichever it is.

    Args:
        env: belongs to this game, which closes it.
        name: what messages call it; default nothing but the player.

    Attributes:
        env: the argument.
        players: the names of all, in the order of the environment.
        flags: by player, whether its part was terminated and whether it was truncated.
        observation_spaces, action_spaces: by player.
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
        """Return the players who act now, in the order of the environment; none at the end."""

    @abstractmethod
    def step(self, actions: Mapping[str, Tree]) -> dict[str, float]:
        """Play the actions of those who act now, and return the reward of each player who got one.

        Raises:
            TypeError: for a reward that is not one number; names the player.
        """

    @abstractmethod
    def _observed(self, player: str) -> tuple[Tree, Any]:
        """Return a player's observation and info."""

    def observe(self, player: str) -> tuple[Tree, list[int] | None]:
        """Return what a player sees, and its action mask, as 0 and 1, if the game shows one.

        The methods below go by this mask until the player is observed again.
        """
        observation, info = self._observed(player)
        mask = self._masks[player] = action_mask_of(observation, info)
        return observation, mask

    def legal_actions(self, player: str) -> list[int] | None:
        """Return the actions that the game takes from a player; None if it does not say."""
        space, mask = self.action_spaces[player], self._masks.get(player)
        # Masks of other spaces have no common form; and some games show a mask of zeros to those who have no
        # choice.
        if mask is None or not isinstance(space, gym.spaces.Discrete) or not any(mask):
            return None
        legal: list[int] = (np.flatnonzero(mask) + int(space.start)).tolist()
        return legal

    def draw_action(self, player: str, generator: np.random.Generator) -> Tree:
        """Return a random element of the player's space, a legal one where the game says which are."""
        legal = self.legal_actions(player)
        if legal is not None:
            return legal[int(generator.integers(len(legal)))]
        return draw_actions(self.action_spaces[player], generator, ())

    def first_action(self, player: str) -> Tree:
        """Return the first legal action; where the game does not say, 0 or what is nearest to it."""
        legal = self.legal_actions(player)
        return zero_of(self.action_spaces[player]) if legal is None else legal[0]

    def _reward(self, player: str, reward: Any) -> float:
        return reward_of(reward, *self._of, player)

    def close(self) -> None:
        """Close the environment, at the latest with the last game that draws. Idempotent."""
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
            # Each whatever the others raise.
            with ExitStack() as stack:
                for env in ending:
                    stack.callback(env.close)


class AecGame(MultiAgentGame):
    """An AEC environment: its own order says who acts, and players whose part is over are passed over."""

    def reset(self, seed: int) -> None:
        """Begin an episode."""
        self.env.reset(seed=seed)
        self.flags = dict.fromkeys(self.players, (False, False))

    def turn(self) -> list[str]:
        """Return the player who acts now."""
        env = self.env
        # Here and not in `step`: until somebody asks, what those saw last whose part is over is still there.
        while env.agents:
            mover = env.agent_selection
            if not (env.terminations[mover] or env.truncations[mover]):
                return [mover]
            env.step(None)  # as the interface wants it
        return []

    def step(self, actions: Mapping[str, Tree]) -> dict[str, float]:
        """Play the action, and return what each player got for it."""
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
    """A parallel environment: in each step all act who are still there."""

    def __init__(self, env: Any, name: str | None = None) -> None:
        super().__init__(env, name)
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
        return {name: self._reward(name, rewards[name]) for name in actions}

    def _observed(self, player: str) -> tuple[Tree, Any]:
        return self._observations[player], self._infos.get(player)


def game_of(env: Any, name: str | None = None) -> MultiAgentGame:
    """Return an environment of PettingZoo's interface as a game, which closes it.

    name: what messages call it; default nothing but the player.
    """
    # What only AEC environments have; wrappers pass it on.
    return AecGame(env, name) if hasattr(env, "agent_iter") else ParallelGame(env, name)


def with_render_mode(env: Any, make: Callable[..., Any], modes: Sequence[str]) -> Any:
    """Return an environment that draws: `env`, or a new one in its place if it can draw but does not.

    make: called with `render_mode`, the first of `modes` that the environment's metadata name.
    """
    known = (getattr(env, "metadata", None) or {}).get("render_modes") or ()
    mode = next((mode for mode in modes if mode in known), None)
    if mode is None or getattr(env, "render_mode", None) is not None:
        return env
    env.close()
    return make(render_mode=mode)


# Reentrant: a game that is refused after it was made is closed within `keep_games_open`.
_lock = threading.RLock()
_drawing: set[int] = set()  # by id, of the environments of games that are open
_waiting: list[Any] = []  # environments to be closed with the last of these


@contextmanager
def keep_games_open() -> Iterator[None]:
    """Close no game meanwhile: what a game makes of pygame while it is made would be gone."""
    with _lock:
        yield
