"""Catalogue of operator kinds: what each needs and where it can play."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NamedTuple

from parllel.distributed.operators.protocol.multi_agent_config import ILLEGAL_RULES, SEATS
from parllel.policies.env_names import check_env_name


class OperatorKind(NamedTuple):
    """A kind of operator.

    workers: modules in `parllel.distributed.operators.workers` that play this kind.
    needs: description of what its configuration must contain.
    policy: whether the kind takes a policy: "needed", "optional" or "none".
    plays: where it can play: "alone", in "games", or "both".
    """

    name: str
    workers: tuple[str, ...]
    needs: str
    policy: str
    plays: str = "both"

    def missing(self) -> tuple[str, ...]:
        """Return the workers that this version of parllel lacks."""
        return tuple(
            name
            for name in self.workers
            if find_spec(f"parllel.distributed.operators.workers.{name}") is None
        )


KINDS = (
    OperatorKind(
        "rl",
        ("rl_worker",),
        "policy: folder of a run, or a file that CleanRL saved",
        "needed",
    ),
    OperatorKind(
        "policy",
        ("policy_worker",),
        "policy: anything that `parllel play` takes, or a URL",
        "needed",
    ),
    OperatorKind(
        "baseline", ("operators_worker",), "policy: random, noop or file.py:name", "needed"
    ),
    OperatorKind("human", ("human_worker",), "a terminal, or the page of the dashboard", "none"),
    OperatorKind(
        "llm",
        ("operators_worker", "balrog_worker", "chess_worker"),
        "settings: model; provider or base_url; api_key_env",
        "none",
    ),
    OperatorKind(
        "chess",
        ("chess_worker",),
        "policy: random or file.py:name; it is a player of a game",
        "needed",
        plays="games",
    ),
    OperatorKind("program", (), "worker: a command line of your own", "none"),
)
# Suggestions only; any other environment can be given by name.
_ENVS = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "Pendulum-v1",
    "FrozenLake-v1",
    "Taxi-v4",
    "Blackjack-v1",
    "CliffWalking-v1",
    "MiniGrid-Empty-5x5-v0",
    "MiniGrid-DoorKey-6x6-v0",
    "BabyAI-GoToRedBall-v0",
    "ALE/Pong-v5",
    "ALE/Breakout-v5",
)
_GAMES = {
    "pettingzoo/classic/chess_v6": ("player_0", "player_1"),
    "pettingzoo/classic/connect_four_v3": ("player_0", "player_1"),
    "pettingzoo/classic/tictactoe_v3": ("player_1", "player_2"),
    "pettingzoo/classic/rps_v2": ("player_0", "player_1"),
    "mpe2/simple_spread_v3": ("agent_0", "agent_1", "agent_2"),
}


def kinds_as_json() -> dict[str, Any]:
    """Return the choices for setting up operators and games, as JSON values.

    Environments and games are suggestions, limited to those whose modules are installed.
    """
    return {
        "kinds": [
            {
                "kind": kind.name,
                "workers": list(kind.workers),
                "missing": list(kind.missing()),
                "needs": kind.needs,
                "policy": kind.policy,
                "is_player": kind.plays != "alone",
                "is_operator": kind.plays != "games",
            }
            for kind in KINDS
        ],
        "env_ids": [name for name in _ENVS if _is_there(name)],
        "games": [
            {"env_id": name, "players": list(players)}
            for name, players in _GAMES.items()
            if _is_installed(name.partition("/")[0])
        ],
        "illegal": list(ILLEGAL_RULES),
        "seats": list(SEATS),
    }


def _is_there(env_id: str) -> bool:
    try:
        check_env_name(env_id)
    except ValueError:
        return False
    return True


def _is_installed(module: str) -> bool:
    return find_spec(module) is not None
