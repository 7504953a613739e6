"""Games by name, and the observation and action spaces of their players."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from parllel.envs.pettingzoo_module import pettingzoo_maker
from parllel.policies.env_names import file_of, function_named

_MODULE = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)+")


def make_game_env(env_id: str, env_kwargs: Mapping[str, Any] | None = None) -> Any:
    """Make an environment with PettingZoo's interface, AEC or parallel.

    Args:
        env_id: a module, such as "pettingzoo/classic/chess_v6" or "mpe2/simple_spread_v3", or
            "file.py:function", which is executed. If a module has a parallel environment, it is
            preferred.
        env_kwargs: keyword arguments of the environment.

    Raises:
        ValueError: if the game does not exist, or cannot be made.
        FileNotFoundError: if there is no such file.
        ImportError: if the library is not installed.
    """
    make = _maker(env_id)
    try:
        env = make(**(env_kwargs or {}))
    except Exception as error:
        raise ValueError(
            f"game {env_id!r}: could not be made: {type(error).__name__}: {error}"
        ) from error
    if not getattr(env, "possible_agents", None) or not hasattr(env, "action_space"):
        raise ValueError(
            f"game {env_id!r}: expected an AEC or a parallel environment with possible_agents, got "
            f"{type(env).__name__}"
        )
    return env


def player_spaces(
    env_id: str, env_kwargs: Mapping[str, Any] | None, player_id: str
) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Return the observation and action space of a player. Makes the game, and closes it.

    Raises:
        ValueError: if the game has no such player. Also raises as `make_game_env`.
    """
    env = make_game_env(env_id, env_kwargs)
    try:
        if player_id not in env.possible_agents:
            raise ValueError(
                f"game {env_id!r}: expected one of the players {list(env.possible_agents)}, got "
                f"{player_id!r}"
            )
        return env.observation_space(player_id), env.action_space(player_id)
    finally:
        env.close()


def _maker(env_id: str) -> Any:
    if file_of(env_id) is not None:
        return function_named(env_id)
    if _MODULE.fullmatch(env_id):
        return pettingzoo_maker(env_id)
    raise ValueError(
        f"game {env_id!r}: expected a module such as pettingzoo/classic/chess_v6 or "
        "mpe2/simple_spread_v3, or file.py:function"
    )
