"""Runners: the loop of a training run, what is called around it, and runs built by name."""

from parllel.runners.asynchronous_runner import AsynchronousCycle, AsynchronousRunner
from parllel.runners.callback import Callback
from parllel.runners.learning_cycle import LearningCycle
from parllel.runners.matching_parts import check_parts
from parllel.runners.on_policy_runner import OnPolicyRunner
from parllel.runners.progress import ProgressBar
from parllel.runners.random_state import load_random_state, random_state
from parllel.runners.runner import Runner
from parllel.runners.runner_interface import RunnerInterface
from parllel.runners.runs import Build, rebuild, repeat, resume, train
from parllel.runners.user_errors import one_sentence, raised_by_us, within_training
from parllel.runners.video_recorder import VideoRecorder

__all__ = [
    "AsynchronousCycle",
    "AsynchronousRunner",
    "Build",
    "Callback",
    "LearningCycle",
    "OnPolicyRunner",
    "ProgressBar",
    "Runner",
    "RunnerInterface",
    "VideoRecorder",
    "check_parts",
    "load_random_state",
    "one_sentence",
    "raised_by_us",
    "random_state",
    "rebuild",
    "repeat",
    "resume",
    "train",
    "within_training",
]
