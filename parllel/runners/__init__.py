"""Runners: the loop of a training run, its folder, and what is saved."""

from parllel.runners.asynchronous_runner import AsynchronousRunner
from parllel.runners.learning_curve import plot_learning_curve
from parllel.runners.on_policy_runner import OnPolicyRunner, RunResult
from parllel.runners.progress import ProgressBar
from parllel.runners.run_folder import RunFolder, versions
from parllel.runners.state_file import load_state, save_state

__all__ = [
    "AsynchronousRunner",
    "OnPolicyRunner",
    "ProgressBar",
    "RunFolder",
    "RunResult",
    "load_state",
    "plot_learning_curve",
    "save_state",
    "versions",
]
