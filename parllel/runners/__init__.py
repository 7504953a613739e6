"""Runners: the loop of a training run, what is called around it, and runs built by name."""

from parllel.runners.asynchronous_runner import AsynchronousRunner
from parllel.runners.callback import Callback
from parllel.runners.on_policy_runner import OnPolicyRunner
from parllel.runners.progress import ProgressBar
from parllel.runners.runs import Build, rebuild, repeat, resume, train
from parllel.runners.show_policy_runner import ShowPolicyRunner
from parllel.runners.user_errors import one_sentence, raised_by_us, within_training
from parllel.runners.video_recorder import VideoRecorder

__all__ = [
    "AsynchronousRunner",
    "Build",
    "Callback",
    "OnPolicyRunner",
    "ProgressBar",
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
