"""Pictures of runs: learning curves, rendered environments, videos and a window to watch in."""

from parllel.pictures.learning_curve import Curve, curve_with_band, plot_learning_curve
from parllel.pictures.rendered_env import RenderingError
from parllel.pictures.video_file import VideoFile, write_video
from parllel.pictures.video_folder import VideoFolder

__all__ = [
    "Curve",
    "RenderingError",
    "VideoFile",
    "VideoFolder",
    "curve_with_band",
    "plot_learning_curve",
    "write_video",
]
