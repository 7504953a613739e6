"""Parts of a session, made from the configuration of an operator or a game."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any

from parllel.distributed.operators.experiments.operator_session import Episodes
from parllel.distributed.operators.experiments.single_episodes import SingleEpisodes
from parllel.distributed.operators.games.game_episodes import GameEpisodes
from parllel.distributed.operators.games.seated_players import Notice, ignore_notice
from parllel.distributed.operators.llm.llm_settings import USED
from parllel.distributed.operators.operator_launcher import OperatorLauncher
from parllel.distributed.operators.protocol.choosing import Choose
from parllel.distributed.operators.protocol.multi_agent_config import AnyConfig, MultiAgentConfig
from parllel.distributed.operators.viewers import Viewer


def episodes_of(
    config: AnyConfig,
    *,
    start_timeout_s: float,
    step_timeout_s: float | None,
    viewers: Sequence[Viewer],
    choose: Choose | None = None,
    notice: Notice = ignore_notice,
) -> Episodes:
    """Return the player of episodes. Arguments and errors as for SingleEpisodes and GameEpisodes."""
    common: dict[str, Any] = {
        "start_timeout_s": start_timeout_s,
        "step_timeout_s": step_timeout_s,
        "viewers": viewers,
        "choose": choose,
    }
    if isinstance(config, MultiAgentConfig):
        return GameEpisodes(config, notice=notice, **common)
    return SingleEpisodes(config, **common)


def launch_of(
    config: AnyConfig,
    launcher: OperatorLauncher,
    run_id: str,
    used: Mapping[str, int] | None = None,
) -> Callable[[], Any]:
    """Return a function that starts the worker, or the workers of all players.

    used: tokens already used, keyed by operator_id. Only the first workers count them towards
        `token_budget`.
    """
    if used:
        launches = chain(
            [launch_of(_with_used(config, used), launcher, run_id)],
            repeat(launch_of(config, launcher, run_id)),
        )
        return lambda: next(launches)()
    if isinstance(config, MultiAgentConfig):
        return partial(launcher.launch_multiagent_operator, config, run_id)
    return partial(launcher.launch_operator, config, run_id, interactive=True)


def _with_used(config: Any, used: Mapping[str, int]) -> Any:
    if isinstance(config, MultiAgentConfig):
        players = {name: _with_used(player, used) for name, player in config.players.items()}
        return replace(config, players=players)
    n = used.get(config.operator_id, 0)
    return replace(config, variables={**config.variables, USED: str(n)})


def labels_of(config: AnyConfig) -> dict[str, Any]:
    """Return the fields common to all records of an operator or game."""
    name = "game_id" if isinstance(config, MultiAgentConfig) else "operator_id"
    return {name: config.operator_id, "env_id": config.env_id}
