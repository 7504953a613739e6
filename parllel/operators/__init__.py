"""Operators: decision-makers in processes of their own, driven step by step over lines of JSON.

Names are imported when they are first asked for: a worker is started for each operator, and executes this
file.

Raises:
    ImportError: for a name that needs what the extra `operators` installs, if that is missing.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

import parllel.errors as _errors

if _TYPE_CHECKING:
    from parllel.env_names import env_named
    from parllel.operators.board.board import Board
    from parllel.operators.cleanrl_policy import CleanRlPolicy
    from parllel.operators.dashboard.dashboard import Dashboard
    from parllel.operators.episode_outcome import EpisodeOutcome
    from parllel.operators.experiment import Experiment
    from parllel.operators.experiment_file import load_experiment
    from parllel.operators.experiment_result import ExperimentResult
    from parllel.operators.experiment_seeds import Fixed, Procedural
    from parllel.operators.game_episodes import GameEpisodes
    from parllel.operators.interactive_runtime import InteractiveRuntime
    from parllel.operators.intervals import Mean, mean_with_interval, proportion_with_interval
    from parllel.operators.llm.llm_client import LlmClient
    from parllel.operators.llm.scripted_server import ScriptedServer
    from parllel.operators.message_lines import MessageError
    from parllel.operators.multi_agent_config import MultiAgentConfig
    from parllel.operators.multi_agent_operator_handle import MultiAgentOperatorHandle
    from parllel.operators.operator_config import OperatorConfig
    from parllel.operators.operator_launcher import OperatorLauncher
    from parllel.operators.operator_process_handle import OperatorProcessHandle
    from parllel.operators.protocol_streams import take_streams
    from parllel.operators.results import Difference, GroupResult, Latency, OperatorResult
    from parllel.operators.serving import load_failed, serve
    from parllel.operators.several_operators import await_replies
    from parllel.operators.telemetry import Telemetry, read_telemetry, telemetry_path
    from parllel.operators.worker_agent import Decision, WorkerAgent

__all__ = [
    "Board",
    "CleanRlPolicy",
    "Dashboard",
    "Decision",
    "Difference",
    "EpisodeOutcome",
    "Experiment",
    "ExperimentResult",
    "Fixed",
    "GameEpisodes",
    "GroupResult",
    "InteractiveRuntime",
    "Latency",
    "LlmClient",
    "Mean",
    "MessageError",
    "MultiAgentConfig",
    "MultiAgentOperatorHandle",
    "OperatorConfig",
    "OperatorLauncher",
    "OperatorProcessHandle",
    "OperatorResult",
    "Procedural",
    "ScriptedServer",
    "Telemetry",
    "WorkerAgent",
    "await_replies",
    "env_named",
    "load_experiment",
    "load_failed",
    "mean_with_interval",
    "proportion_with_interval",
    "read_telemetry",
    "serve",
    "take_streams",
    "telemetry_path",
]

# Where each name is found. No module may have a name of this table: importing it would put the module in the
# name's place.
_PLACES = {
    "Board": "board.board",
    "CleanRlPolicy": "cleanrl_policy",
    "Dashboard": "dashboard.dashboard",
    "Decision": "worker_agent",
    "Difference": "results",
    "EpisodeOutcome": "episode_outcome",
    "Experiment": "experiment",
    "ExperimentResult": "experiment_result",
    "Fixed": "experiment_seeds",
    "GameEpisodes": "game_episodes",
    "GroupResult": "results",
    "InteractiveRuntime": "interactive_runtime",
    "Latency": "results",
    "LlmClient": "llm.llm_client",
    "Mean": "intervals",
    "MessageError": "message_lines",
    "MultiAgentConfig": "multi_agent_config",
    "MultiAgentOperatorHandle": "multi_agent_operator_handle",
    "OperatorConfig": "operator_config",
    "OperatorLauncher": "operator_launcher",
    "OperatorProcessHandle": "operator_process_handle",
    "OperatorResult": "results",
    "Procedural": "experiment_seeds",
    "ScriptedServer": "llm.scripted_server",
    "Telemetry": "telemetry",
    "WorkerAgent": "worker_agent",
    "await_replies": "several_operators",
    "env_named": ".env_names",
    "load_experiment": "experiment_file",
    "load_failed": "serving",
    "mean_with_interval": "intervals",
    "proportion_with_interval": "intervals",
    "read_telemetry": "telemetry",
    "serve": "serving",
    "take_streams": "protocol_streams",
    "telemetry_path": "telemetry",
}
_EXTRA = ("msgspec", "PIL", "pettingzoo", "chess")


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = _import_module(f".{_PLACES[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        raise ImportError(
            f"parllel.operators.{name} needs {error.name}: {_errors.install_command('operators')}"
        ) from error
    found: object = getattr(module, name)
    globals()[name] = found  # not asked for again
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
