"""Configuration of a game: its environment and one operator per player."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from parllel.distributed.operators.protocol.operator_config import (
    OperatorConfig,
    check_env,
    check_id,
    check_max_steps,
)

ILLEGAL_RULES = ("random", "first", "forfeit", "error")
SEATS = ("fixed", "rotate")


@dataclass(frozen=True)
class MultiAgentConfig:
    """A game and its players, validated on construction. Nothing is opened or started.

    Args:
        operator_id: name of the game. It must be unique among operators and games.
        env_id: the game's environment.
        players: operators keyed by the game's player names. Each operator has a different id, and
            its `env_id` is either missing or the same as the game's.
        env_kwargs: keyword arguments of the environment, as JSON values.
        illegal: how illegal actions are handled. "random" plays a random legal action instead,
            "first" the first legal action. "forfeit" ends the game with -1 for the player and 0 for
            the others. "error" marks the episode as failed.
        seats: "fixed", or "rotate" to move all operators by one seat after each episode.
        max_steps: number of steps after which episodes are truncated.

    Raises:
        TypeError, ValueError: for an invalid value. Names the game.
    """

    operator_id: str
    env_id: str
    players: Mapping[str, OperatorConfig]
    _: KW_ONLY
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    illegal: str = "random"
    seats: str = "fixed"
    max_steps: int | None = None

    def __post_init__(self) -> None:
        check_id(self.operator_id)
        name = f"game {self.operator_id!r}"
        if self.env_id is None:
            raise ValueError(f"{name}: env_id: expected the id of an environment, got None")
        check_env(name, self.env_id, self.env_kwargs)
        if self.illegal not in ILLEGAL_RULES:
            rules = ", ".join(ILLEGAL_RULES)
            raise ValueError(f"{name}: illegal: expected one of {rules}; got {self.illegal!r}")
        if self.seats not in SEATS:
            raise ValueError(f"{name}: seats: expected fixed or rotate, got {self.seats!r}")
        check_max_steps(name, self.max_steps)
        _check_players(name, self)
        object.__setattr__(self, "players", dict(self.players))
        object.__setattr__(self, "env_kwargs", dict(self.env_kwargs))

    def as_json(self) -> dict[str, Any]:
        """Return the JSON values that may be shown and stored, as `OperatorConfig.as_json` does."""
        return {
            "operator_id": self.operator_id,
            "env_id": self.env_id,
            "env_kwargs": dict(self.env_kwargs),
            "players": {player: config.as_json() for player, config in self.players.items()},
            "illegal": self.illegal,
            "seats": self.seats,
            "max_steps": self.max_steps,
        }


# Anything that an experiment or a board can play.
AnyConfig = OperatorConfig | MultiAgentConfig


def operators_of(configs: Iterable[AnyConfig]) -> list[OperatorConfig]:
    """Return all operators, including the players of games."""
    found: list[OperatorConfig] = []
    for config in configs:
        found += config.players.values() if isinstance(config, MultiAgentConfig) else [config]
    return found


def ids_of(config: AnyConfig) -> list[str]:
    """Return the id of an operator, or the ids of a game and its players."""
    players = config.players.values() if isinstance(config, MultiAgentConfig) else ()
    return [config.operator_id, *(player.operator_id for player in players)]


def _check_players(name: str, config: MultiAgentConfig) -> None:
    players = config.players
    if not isinstance(players, Mapping) or not players:
        raise TypeError(
            f"{name}: players: expected a mapping of players to operators, got {players!r}"
        )
    taken: dict[str, str] = {}
    for player, operator in players.items():
        if not isinstance(player, str) or not player:
            raise TypeError(f"{name}: players: expected names of players, got {player!r}")
        if not isinstance(operator, OperatorConfig):
            raise TypeError(
                f"{name}: player {player!r}: expected an OperatorConfig, got {type(operator).__name__}"
            )
        if operator.env_id not in (None, config.env_id):
            raise ValueError(
                f"{name}: player {player!r}: expected no env_id, or {config.env_id!r}, because all "
                f"players play the same game; got {operator.env_id!r}"
            )
        other = taken.setdefault(operator.operator_id, player)
        if other != player:
            raise ValueError(
                f"{name}: players {other!r} and {player!r} both have the operator_id "
                f"{operator.operator_id!r}; give each player a different one"
            )
