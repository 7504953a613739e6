"""Cages: environments in their places."""

from parllel.cages.answers import FinalObservation
from parllel.cages.awaited import Awaited
from parllel.cages.awaited_rows import AwaitedRows, await_rows
from parllel.cages.cage import Cage
from parllel.cages.cage_interface import CageInterface
from parllel.cages.env_registry import WithRegistry
from parllel.cages.env_stepper import EnvStepper
from parllel.cages.held_environments import HeldEnvironments
from parllel.cages.make_envs import EnvFactory
from parllel.cages.multi_agent_traj_info import MultiAgentTrajInfo
from parllel.cages.process_cage import ProcessCage
from parllel.cages.spaces import (
    Spaces,
    action_reader,
    check_side_by_side,
    example_of,
    stack_reader,
    stored_example,
)
from parllel.cages.step_result import StepResult
from parllel.cages.synchronized_process_cage import SynchronizedProcessCage
from parllel.cages.traj_info import TrajInfo
from parllel.cages.trajectories import TrajInfoFactory
from parllel.cages.vector_env_factory import VectorEnvFactory
from parllel.cages.vectorized_cage import VectorizedCage
from parllel.cages.worker_policy import MakePolicy, WorkerPolicy

__all__ = [
    "Awaited",
    "AwaitedRows",
    "Cage",
    "CageInterface",
    "EnvFactory",
    "EnvStepper",
    "FinalObservation",
    "HeldEnvironments",
    "MakePolicy",
    "MultiAgentTrajInfo",
    "ProcessCage",
    "Spaces",
    "StepResult",
    "SynchronizedProcessCage",
    "TrajInfo",
    "TrajInfoFactory",
    "VectorEnvFactory",
    "VectorizedCage",
    "WithRegistry",
    "WorkerPolicy",
    "action_reader",
    "await_rows",
    "check_side_by_side",
    "example_of",
    "stack_reader",
    "stored_example",
]
