"""Cages: environments stepped in this process, in another one, or in a pool of workers.

Cage, VectorizedCage, ProcessCage and SynchronizedProcessCage implement one interface, `CageInterface`. Their
parts are in stepping/ (rows, checks, episodes), workers/ (processes) and native/ (vector environments).
"""

from parllel.cages.cage import Cage
from parllel.cages.cage_interface import CageInterface
from parllel.cages.process_cage import ProcessCage
from parllel.cages.spaces import Spaces, check_side_by_side, example_of, stored_example
from parllel.cages.stepping.make_envs import EnvFactory, VectorEnvFactory
from parllel.cages.stepping.multi_agent_traj_info import MultiAgentTrajInfo
from parllel.cages.stepping.pending_rows import PendingRows
from parllel.cages.stepping.step_result import FinalObservation, StepResult
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.synchronized_process_cage import SynchronizedProcessCage
from parllel.cages.traj_info import TrajInfo
from parllel.cages.vectorized_cage import VectorizedCage
from parllel.cages.workers.worker_policy import WorkerPolicy

__all__ = [
    "Cage",
    "CageInterface",
    "EnvFactory",
    "FinalObservation",
    "MultiAgentTrajInfo",
    "PendingRows",
    "ProcessCage",
    "Spaces",
    "StepResult",
    "SynchronizedProcessCage",
    "TrajInfo",
    "TrajInfoFactory",
    "VectorEnvFactory",
    "VectorizedCage",
    "WorkerPolicy",
    "check_side_by_side",
    "example_of",
    "stored_example",
]
