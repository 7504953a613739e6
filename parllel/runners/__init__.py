"""Runners: the loop of a training run, what is called around it, and runs built by name."""

from importlib import import_module as _import_module
from sys import _getframe

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


def __getattr__(name: str) -> object:
    # The scripts that folders of earlier runs name may import from here what has moved.
    said = f"module {__name__!r} has no attribute {name!r}"
    if not name.startswith("_"):
        for place in ("parllel.runs", "parllel.pictures"):
            if name in _import_module(place).__all__:
                said = f"{name} has moved: write `from {place} import {name}`"
                # `from ... import` drops an AttributeError with its text, so it gets the error that it
                # would raise; `hasattr`, and all others, get the one that they can expect.
                if _getframe(1).f_code.co_name == "_handle_fromlist":
                    raise ImportError(said, name=name)
    raise AttributeError(said)
