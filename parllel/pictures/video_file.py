"""A video on disk, written picture by picture, whole or not at all.

this process    write(frame) --bytes--> pipe
ffmpeg                                  pipe --> beside.tmp      ends with this process, however that ends
this process                                     beside.tmp --rename at close--> video.mp4
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import numpy as np

from parllel.errors import ClosedError, WorkerDiedError, WorkerTimeoutError, install_command
from parllel.pictures.rendered_env import DEFAULT_FPS, Frame, check_picture
from parllel.system.processes.program import Program

WRITE_S = 60.0  # for ffmpeg to take a picture
CLOSE_S = 60.0  # for ffmpeg to write what it still holds

# One thread: the environments and the agent need the other cores.
_MP4 = ("-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p")
# A palette for each picture: one for all of them would keep all of them in memory.
_GIF_PALETTE = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1"
_OUTPUT = {
    ".mp4": (*_MP4, "-threads", "1", "-f", "mp4"),
    ".gif": ("-vf", _GIF_PALETTE, "-f", "gif"),
}


def check_video_path(path: Path) -> None:
    """Raise ValueError unless a path ends in .mp4 or .gif."""
    if path.suffix.lower() not in _OUTPUT:
        raise ValueError(f"{path}: expected a file name that ends in .mp4 or .gif")


class VideoFile:
    """Writes pictures into an .mp4 (H.264) or .gif file.

    The file appears under its name when it is closed, complete; one of that name is replaced. Without a
    picture there is no file. Leaving `with` by an exception discards it.

    Args:
        path: ends in .mp4 or .gif; its folder is made if needed.
        fps: pictures per second.

    Raises:
        ImportError: without imageio-ffmpeg; names the extra.
        ValueError: for another ending, or `fps` that is not above 0.
        OSError: if the folder cannot be made, or there is no ffmpeg to run.
    """

    def __init__(self, path: str | os.PathLike[str], fps: float = DEFAULT_FPS) -> None:
        self.path = Path(path)
        check_video_path(self.path)
        if not 0 < fps < float("inf"):
            raise ValueError(f"fps: expected a number above 0, got {fps}")
        self._fps = fps
        self._ffmpeg = _find_ffmpeg()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own, as two processes may write the same video.
        self._aside = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}.tmp")
        self._shape: tuple[int, ...] | None = None
        self._program: Program | None = None
        self._closed = False
        self._owner = os.getpid()  # a fork has a copy of this object, not of ffmpeg

    def write(self, frame: Frame) -> None:
        """Add a picture, uint8 [H, W, 3], all of one size; it may be changed afterwards.

        Errors of ffmpeg are raised by `close`, even if it has ended by now.

        Raises:
            ValueError: if it is no picture, or one of another size than the first.
            WorkerTimeoutError: if ffmpeg does not take it in a minute. The file is discarded.
            ClosedError: after `close` or `discard`, and in a fork of the process that opened the file.
        """
        if os.getpid() != self._owner:
            raise ClosedError(
                f"{self.path}: only process {self._owner}, which opened it, can write to it"
            )
        if self._closed:
            raise ClosedError(f"{self.path}: written to after close()")
        check_picture(frame, f"{self.path}: frame")
        if self._shape not in (None, frame.shape):
            raise ValueError(
                f"{self.path}: frame: expected the size of the first frame, {self._shape}, got "
                f"{frame.shape}"
            )
        self._shape = frame.shape
        if self.path.suffix.lower() == ".mp4":
            frame = _even(frame)
        if self._program is None:
            self._program = self._start(frame)
        try:
            self._program.write(np.ascontiguousarray(frame).data, WRITE_S)
        except (WorkerDiedError, ClosedError):  # ffmpeg takes no more: close() says why
            return
        except WorkerTimeoutError:
            self.discard()
            raise

    def _start(self, frame: Frame) -> Program:
        height, width, _ = frame.shape
        options = ["-hide_banner", "-nostats", "-loglevel", "error", "-y"]
        pictures = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
        pictures += ["-r", f"{self._fps:.6g}", "-i", "-", "-an"]
        # Absolute, as ffmpeg would take a name that begins with a dash for an option.
        output = [*_OUTPUT[self.path.suffix.lower()], str(self._aside.absolute())]
        command = [self._ffmpeg, *options, *pictures, *output]
        try:
            return Program(command, name=f"{self.path}: ffmpeg", lines=False)
        except WorkerDiedError as error:  # the fork server: callers are prepared for OSError
            raise OSError(str(error)) from error

    def close(self) -> None:
        """Complete the file. Idempotent; does nothing in a fork.

        Raises:
            OSError: if it could not be written in full (a full disk, ffmpeg killed); says what ffmpeg said.
                Nothing is left of it.
        """
        self._closed = True
        if self._program is None or os.getpid() != self._owner:
            return
        try:
            problem = self._end()
        except BaseException:  # such as Ctrl-C, as this may take a minute
            self._remove()
            raise
        if problem is None:
            try:
                os.replace(self._aside, self.path)
                return
            except OSError as error:
                problem = str(error)
        self._remove()
        raise OSError(f"{self.path}: the video could not be written: {problem}")

    def discard(self) -> None:
        """End ffmpeg and leave no file; after `close`, and in a fork, this does nothing."""
        self._closed = True
        if os.getpid() != self._owner:
            return
        program, self._program = self._program, None
        if program is not None:
            program.kill()  # it would otherwise go on to complete the file
            self._remove()

    def _end(self) -> str | None:
        """Wait for ffmpeg and return what went wrong, if anything did."""
        program, self._program = self._program, None
        assert program is not None
        try:
            program.close_input()
            code = program.wait(CLOSE_S)
            words = [line.strip() for line in program.last_lines() if line.strip()]
        finally:
            program.kill()
        if code is None:
            return f"ffmpeg did not end within {CLOSE_S:.0f} s"
        # Some versions end with status 0 although the disk was full, but have written a message.
        if code == 0 and not words:
            return None
        return f"ffmpeg ended with status {code}" + (f": {words[-1]}" if words else "")

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._aside.unlink()

    def __del__(self) -> None:
        # By getattr: a constructor may have failed before it set anything.
        if getattr(self, "_program", None) is not None:
            with contextlib.suppress(Exception):
                self.discard()

    def __enter__(self) -> VideoFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.discard()


def write_video(
    path: str | os.PathLike[str], frames: Iterable[Frame], fps: float = DEFAULT_FPS
) -> None:
    """Write a whole video at once; `frames` may be uint8 [N, H, W, 3]. Raises what VideoFile does."""
    with VideoFile(path, fps) as file:
        for frame in frames:
            file.write(frame)


def _even(frame: Frame) -> Frame:
    """Return the frame with an even height and width, as the format wants it: edges are repeated."""
    height, width, _ = frame.shape
    if height % 2 == 0 and width % 2 == 0:
        return frame
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def _find_ffmpeg() -> str:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise ImportError(
            f"videos need imageio-ffmpeg: {install_command('video')}", name=error.name
        ) from error
    try:
        found: str = imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:
        raise OSError(f"no ffmpeg was found: {error}") from error
    return found
