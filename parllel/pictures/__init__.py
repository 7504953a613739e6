"""Pictures of runs: learning curves, rendered environments, videos and a window to watch in."""

from parllel.pictures.learning_curve import (
    Curve,
    check_plot_path,
    curve_with_band,
    plot_learning_curve,
    read_curve,
)
from parllel.pictures.png import png_bytes
from parllel.pictures.rendered_columns import RenderedColumns
from parllel.pictures.rendered_env import DEFAULT_FPS, Frame, RenderedEnv, RenderingError
from parllel.pictures.video_file import VideoFile, check_video_path, write_video
from parllel.pictures.video_folder import VideoFolder
from parllel.pictures.window import Window, WindowClosedError, has_display

__all__ = [
    "DEFAULT_FPS",
    "Curve",
    "Frame",
    "RenderedColumns",
    "RenderedEnv",
    "RenderingError",
    "VideoFile",
    "VideoFolder",
    "Window",
    "WindowClosedError",
    "check_plot_path",
    "check_video_path",
    "curve_with_band",
    "has_display",
    "plot_learning_curve",
    "png_bytes",
    "read_curve",
    "write_video",
]
