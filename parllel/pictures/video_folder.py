"""A folder of numbered videos, of which the newest are kept."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from parllel.pictures.rendered_env import DEFAULT_FPS, Frame
from parllel.pictures.video_file import VideoFile, write_video


class VideoFolder:
    """Writes videos `<prefix>-<12 digits>.mp4` into a folder.

    Called with a number and frames it writes a whole video, so it can be given to the transform
    `RecordVideo`.

    Args:
        path: path of the folder, which is created with the first video.
        prefix: prefix of the file names. Videos with a different prefix are not touched.
        keep: number of videos to keep, those with the largest numbers; None keeps all.
        fps: pictures per second.

    Raises:
        ValueError: if `keep` is less than one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        prefix: str = "step",
        keep: int | None = 10,
        fps: float = DEFAULT_FPS,
    ) -> None:
        if keep is not None and keep < 1:
            raise ValueError(f"keep: expected at least 1 or None, got {keep}")
        self.path = Path(path)
        self.prefix = prefix
        self.keep = keep
        self.fps = fps

    def check(self) -> None:
        """Raise now what the first video would: ImportError, or OSError for a folder that is not writable."""
        self.open(0).discard()
        with tempfile.TemporaryFile(dir=self.path):
            pass

    def open(self, number: int) -> VideoFile:
        """Return a file for the video of that number; `prune` is to be called when it is closed."""
        return VideoFile(self._path_of(number), self.fps)

    def __call__(self, number: int, frames: Iterable[Frame]) -> None:
        """Write a whole video; raises what VideoFile does."""
        write_video(self._path_of(number), frames, self.fps)
        self.prune()

    def prune(self) -> None:
        """Remove all but the newest, and the unfinished files of killed processes."""
        if self.keep is not None:
            for path in self.paths()[: -self.keep]:
                with contextlib.suppress(OSError):  # a video that stays does no harm
                    path.unlink()
        for path in self.path.glob(f"{self.prefix}-*.tmp"):
            with contextlib.suppress(OSError):
                path.unlink()

    def paths(self) -> list[Path]:
        """Return the existing videos, keyed by number."""
        found = self.path.glob(f"{self.prefix}-*.mp4")
        return sorted(path for path in found if path.stem[len(self.prefix) + 1 :].isdigit())

    def _path_of(self, number: int) -> Path:
        return self.path / f"{self.prefix}-{number:012d}.mp4"
