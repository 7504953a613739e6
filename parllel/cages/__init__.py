"""Cages: environments in their places."""

from parllel.cages.cage import Cage
from parllel.cages.cage_interface import CageInterface
from parllel.cages.env_registry import WithRegistry
from parllel.cages.native.vector_env_factory import VectorEnvFactory
from parllel.cages.process_cage import ProcessCage
from parllel.cages.spaces import (
    Spaces,
    action_reader,
    check_side_by_side,
    example_of,
    stack_reader,
    stored_example,
)
from parllel.cages.stepping.awaited_rows import AwaitedRows, await_rows
from parllel.cages.stepping.env_stepper import EnvStepper
from parllel.cages.stepping.held_environments import HeldEnvironments
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.cages.stepping.multi_agent_traj_info import MultiAgentTrajInfo
from parllel.cages.stepping.step_result import StepResult
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.synchronized_process_cage import SynchronizedProcessCage
from parllel.cages.traj_info import TrajInfo
from parllel.cages.vectorized_cage import VectorizedCage
from parllel.cages.workers.answers import FinalObservation
from parllel.cages.workers.awaited import Awaited
from parllel.cages.workers.worker_policy import MakePolicy, WorkerPolicy

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
