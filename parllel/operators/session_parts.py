"""What a session of one operator, or of one game, is made of, from either kind of config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from parllel.operators.choosing import Choose
from parllel.operators.game_episodes import GameEpisodes
from parllel.operators.multi_agent_config import MultiAgentConfig
from parllel.operators.operator_config import OperatorConfig
from parllel.operators.operator_launcher import OperatorLauncher
from parllel.operators.operator_session import Episodes
from parllel.operators.seated_players import Notice, no_notice
from parllel.operators.single_episodes import SingleEpisodes
from parllel.operators.viewers import Viewer


def episodes_of(
    config: OperatorConfig | MultiAgentConfig,
    *,
    start_timeout_s: float,
    step_timeout_s: float | None,
    viewers: Sequence[Viewer],
    choose: Choose | None = None,
    notice: Notice = no_notice,
) -> Episodes:
    """Return what plays episodes; arguments and errors are those of SingleEpisodes and GameEpisodes."""
    if isinstance(config, MultiAgentConfig):
        return GameEpisodes(
            config,
            start_timeout_s=start_timeout_s,
            step_timeout_s=step_timeout_s,
            viewers=viewers,
            choose=choose,
            notice=notice,
        )
    return SingleEpisodes(
        config,
        start_timeout_s=start_timeout_s,
        step_timeout_s=step_timeout_s,
        viewers=viewers,
        choose=choose,
    )


def launch_of(
    config: OperatorConfig | MultiAgentConfig, launcher: OperatorLauncher, run_id: str
) -> Callable[[], Any]:
    """Return what starts the worker, or the workers of all players."""
    if isinstance(config, MultiAgentConfig):
        return partial(launcher.launch_multiagent_operator, config, run_id)
    return partial(launcher.launch_operator, config, run_id, interactive=True)


def labels_of(config: OperatorConfig | MultiAgentConfig) -> dict[str, Any]:
    """Return the fields that all of its records have."""
    name = "game_id" if isinstance(config, MultiAgentConfig) else "operator_id"
    return {name: config.operator_id, "env_id": config.env_id}
