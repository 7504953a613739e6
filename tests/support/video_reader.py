"""Videos read back, by a reader that is not ours."""

from __future__ import annotations

import warnings

import imageio.v3 as imageio


def read(path):
    """Return the pictures [N, H, W, 3]."""
    plugin = "FFMPEG" if path.suffix == ".mp4" else "pillow"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the reader's own making
        frames = imageio.imread(path, plugin=plugin, index=None if plugin == "FFMPEG" else ...)
    return frames[..., :3]


def fps_of(path):
    """Return the pictures per second of an .mp4 file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return imageio.immeta(path, plugin="FFMPEG")["fps"]
