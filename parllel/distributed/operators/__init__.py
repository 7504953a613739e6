"""Operators: decision-makers in separate processes, driven step by step over lines of JSON.

Names are imported on first use, because every worker process executes this file when it starts.

Raises:
    ImportError: for a name that needs the extra `operators`, if that is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from parllel.lazy_names import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from parllel.distributed.operators.board.board import Board
    from parllel.distributed.operators.dashboard.dashboard import Dashboard
    from parllel.distributed.operators.experiments.episode_outcome import EpisodeOutcome
    from parllel.distributed.operators.experiments.experiment import Experiment, ExperimentResult
    from parllel.distributed.operators.experiments.experiment_file import load_experiment
    from parllel.distributed.operators.experiments.experiment_seeds import (
        FixedSeeds,
        ProceduralSeeds,
    )
    from parllel.distributed.operators.experiments.results import OperatorResult
    from parllel.distributed.operators.experiments.telemetry import read_telemetry
    from parllel.distributed.operators.llm.scripted_server import ScriptedServer
    from parllel.distributed.operators.operator_launcher import OperatorLauncher
    from parllel.distributed.operators.protocol.message_lines import MessageError
    from parllel.distributed.operators.protocol.multi_agent_config import MultiAgentConfig
    from parllel.distributed.operators.protocol.operator_config import OperatorConfig
    from parllel.distributed.operators.protocol.protocol_streams import take_streams
    from parllel.distributed.operators.workers.cleanrl_policy import CleanRlPolicy
    from parllel.distributed.operators.workers.serving import load_failed, serve
    from parllel.distributed.operators.workers.worker_agent import Decision, WorkerAgent

__all__ = [
    "Board",
    "CleanRlPolicy",
    "Dashboard",
    "Decision",
    "EpisodeOutcome",
    "Experiment",
    "ExperimentResult",
    "FixedSeeds",
    "MessageError",
    "MultiAgentConfig",
    "OperatorConfig",
    "OperatorLauncher",
    "OperatorResult",
    "ProceduralSeeds",
    "ScriptedServer",
    "WorkerAgent",
    "load_experiment",
    "load_failed",
    "read_telemetry",
    "serve",
    "take_streams",
]

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "board.board": ("Board",),
        "dashboard.dashboard": ("Dashboard",),
        "experiments.episode_outcome": ("EpisodeOutcome",),
        "experiments.experiment": (
            "Experiment",
            "ExperimentResult",
        ),
        "experiments.experiment_file": ("load_experiment",),
        "experiments.experiment_seeds": (
            "FixedSeeds",
            "ProceduralSeeds",
        ),
        "experiments.results": ("OperatorResult",),
        "experiments.telemetry": ("read_telemetry",),
        "llm.scripted_server": ("ScriptedServer",),
        "operator_launcher": ("OperatorLauncher",),
        "protocol.message_lines": ("MessageError",),
        "protocol.multi_agent_config": ("MultiAgentConfig",),
        "protocol.operator_config": ("OperatorConfig",),
        "protocol.protocol_streams": ("take_streams",),
        "workers.cleanrl_policy": ("CleanRlPolicy",),
        "workers.serving": (
            "load_failed",
            "serve",
        ),
        "workers.worker_agent": (
            "Decision",
            "WorkerAgent",
        ),
    },
    extra="operators",
    libraries=("msgspec", "PIL", "pettingzoo", "chess"),
)
