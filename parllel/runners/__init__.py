"""Runners: the training loop, callbacks, and runs that are started, resumed and repeated by folder."""

from parllel.runners.asynchronous_runner import AsynchronousRunner
from parllel.runners.callback import Callback
from parllel.runners.histogram_recorder import HistogramRecorder
from parllel.runners.learning_cycle import LearningCycle
from parllel.runners.matching_parts import check_parts
from parllel.runners.off_policy_runner import OffPolicyRunner
from parllel.runners.progress import ProgressBar
from parllel.runners.runner import OnPolicyRunner, Runner
from parllel.runners.runs import Build, repeat, resume, train
from parllel.runners.user_errors import is_own_error, one_sentence, within_training
from parllel.runners.video_recorder import VideoRecorder

__all__ = [
    "AsynchronousRunner",
    "Build",
    "Callback",
    "HistogramRecorder",
    "LearningCycle",
    "OffPolicyRunner",
    "OnPolicyRunner",
    "ProgressBar",
    "Runner",
    "VideoRecorder",
    "check_parts",
    "is_own_error",
    "one_sentence",
    "repeat",
    "resume",
    "train",
    "within_training",
]
