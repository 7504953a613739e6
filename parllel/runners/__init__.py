"""Runners: the loop of a training run, what is called around it, and runs built by name."""

from importlib import import_module as _import_module

from parllel.runners.asynchronous_runner import AsynchronousRunner
from parllel.runners.callback import Callback
from parllel.runners.learning_cycle import LearningCycle
from parllel.runners.on_policy_runner import OnPolicyRunner
from parllel.runners.progress import ProgressBar
from parllel.runners.runner import Runner
from parllel.runners.runner_interface import RunnerInterface
from parllel.runners.runs import Build, rebuild, repeat, resume, train
from parllel.runners.show_policy_runner import ShowPolicyRunner
from parllel.runners.user_errors import one_sentence, raised_by_us, within_training
from parllel.runners.video_recorder import VideoRecorder

__all__ = [
    "AsynchronousRunner",
    "Build",
    "Callback",
    "LearningCycle",
    "OnPolicyRunner",
    "ProgressBar",
    "Runner",
    "RunnerInterface",
    "ShowPolicyRunner",
    "VideoRecorder",
    "one_sentence",
    "raised_by_us",
    "rebuild",
    "repeat",
    "resume",
    "train",
    "within_training",
]


def __getattr__(name: str) -> object:
    # The scripts that folders of earlier runs name may import from here what has moved.
    for place in ("parllel.runs", "parllel.pictures"):
        if not name.startswith("_") and name in _import_module(place).__all__:
            raise ImportError(f"{name} has moved: write `from {place} import {name}`")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
