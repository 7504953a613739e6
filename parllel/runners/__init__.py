"""Runners: the loop of a training run, its folder, and what is saved."""

from parllel.runners.asynchronous_runner import AsynchronousRunner
from parllel.runners.callback import Callback
from parllel.runners.checkpoints import Checkpoints
from parllel.runners.config import change_config, config_values, read_config
from parllel.runners.learning_curve import curve_with_band, plot_learning_curve, read_curve
from parllel.runners.on_policy_runner import OnPolicyRunner
from parllel.runners.progress import ProgressBar
from parllel.runners.rendered_columns import RenderedColumns, RenderingError
from parllel.runners.run_folder import RunFolder, versions
from parllel.runners.run_record import RunRecord
from parllel.runners.run_result import RunResult
from parllel.runners.runs import Build, rebuild, repeat, resume, train
from parllel.runners.show_policy_runner import ShowPolicyRunner
from parllel.runners.state_file import check_state, load_state, save_state
from parllel.runners.video_file import VideoFile, write_video
from parllel.runners.video_folder import VideoFolder
from parllel.runners.video_recorder import VideoRecorder
from parllel.runners.window import Window, WindowClosedError, has_display

__all__ = [
    "AsynchronousRunner",
    "Build",
    "Callback",
    "Checkpoints",
    "OnPolicyRunner",
    "ProgressBar",
    "RenderedColumns",
    "RenderingError",
    "RunFolder",
    "RunRecord",
    "RunResult",
    "ShowPolicyRunner",
    "VideoFile",
    "VideoFolder",
    "VideoRecorder",
    "Window",
    "WindowClosedError",
    "change_config",
    "check_state",
    "config_values",
    "curve_with_band",
    "has_display",
    "load_state",
    "plot_learning_curve",
    "read_config",
    "read_curve",
    "rebuild",
    "repeat",
    "resume",
    "save_state",
    "train",
    "versions",
    "write_video",
]
