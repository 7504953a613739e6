"""Videos of evaluations."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from parllel.cages.traj_info import TrajInfo
from parllel.pictures.rendered_columns import RenderedColumns
from parllel.pictures.video_file import VideoFile
from parllel.pictures.video_folder import VideoFolder
from parllel.runners.callback import Callback, RunnerInterface
from parllel.samplers.eval_sampler import EvalSampler
from parllel.transforms.record_video import (
    RecordingSchedule,
    capped_cubic,
    check_schedule,
    picture_grid,
)
from parllel.types import State

# Of a GIF: at most this many pixels wide, every second picture of the first ones.
_SMALL_WIDTH, _SMALL_EVERY, _SMALL_FRAMES = 320, 2, 300


class VideoRecorder(Callback):
    """Records evaluations as videos such as `step-000000020480.mp4`, with several environments side by side.

    Make the environments with render_mode="rgb_array". Each picture is taken before a step. An
    environment that has played all its episodes is shown frozen, or playing further episodes that
    do not count. If making a video fails, a warning is logged, and the next video is attempted as
    usual. Writers that show pictures, such as `TensorBoardWriter`, get a smaller and shorter GIF of it.

    Args:
        schedule: function that decides whether to record, given the number of environment steps so
            far and the number of the evaluation, counted from 0; see `parllel.transforms.every_nth`
            and `capped_cubic`.
        folder: folder for the videos; defaults to `videos` in the run's folder.
        n_envs: maximum number of environments to show in one picture.
        max_frames: maximum number of frames in a video; the rest of the evaluation is not recorded.
        keep: number of videos to keep; older ones are removed. None keeps all.
        fps: pictures per second; defaults to the environment's own rate, or 30.

    The state is the number of evaluations.

    Raises:
        ValueError: if a number is less than one.
        TypeError: if `schedule` is not a function.
    """

    def __init__(
        self,
        schedule: RecordingSchedule = capped_cubic,
        *,
        folder: str | os.PathLike[str] | None = None,
        n_envs: int = 4,
        max_frames: int = 1000,
        keep: int | None = 10,
        fps: float | None = None,
    ) -> None:
        for name, value in (("n_envs", n_envs), ("max_frames", max_frames), ("keep", keep)):
            if value is not None and value < 1:
                raise ValueError(f"VideoRecorder: {name}: expected at least 1, got {value}")
        check_schedule("VideoRecorder", schedule)
        self._schedule = schedule
        self._folder = folder
        self._n_envs = n_envs
        self._max_frames = max_frames
        self._keep = keep
        self._fps = fps
        self._n_evaluations = 0
        self._file: VideoFile | None = None
        self._small: VideoFile | None = None  # for the writers that show pictures
        self._frames_left = 0

    def start(self, runner: RunnerInterface) -> None:
        """Check early whether the environments can be rendered and videos can be written.

        Raises:
            ValueError: if there is no EvalSampler, or no folder.
            WrongStateError: if the environments were not made with render_mode="rgb_array".
            ImportError, OSError: if videos cannot be written.
        """
        sampler = runner.eval_sampler
        if not isinstance(sampler, EvalSampler):
            raise ValueError(
                f"VideoRecorder: expected a runner with an EvalSampler, got {sampler!r}"
            )
        folder = self._folder
        if folder is None:
            if runner.folder is None:
                raise ValueError(
                    "VideoRecorder: folder: expected a folder, because the runner has none"
                )
            folder = runner.folder.path / "videos"
        self._runner, self._sampler = runner, sampler
        self._rendered = RenderedColumns(sampler.cages, range(len(sampler.quotas))[: self._n_envs])
        self._videos = VideoFolder(folder, keep=self._keep, fps=self._fps or self._rendered.fps)
        self._videos.check()  # at the start, and not at the first evaluation that is recorded

    def before_evaluation(self, elapsed_steps: int) -> None:
        """Begin a video, if one is due."""
        due = self._schedule(elapsed_steps, self._n_evaluations)
        # Counted whether it is recorded or not, as schedules go by the number of evaluations.
        self._n_evaluations += 1
        if not due:
            return
        try:
            self._file = self._videos.open(elapsed_steps)
            if self._runner.logger.shows_pictures:
                path = self._videos.path / f"{self._videos.prefix}-newest.gif"
                self._small = VideoFile(path, self._videos.fps / _SMALL_EVERY)
        except OSError as error:
            self._warn(error)
            return
        self._frames_left = self._max_frames
        self._sampler.watch = self._record

    def _record(self) -> None:
        try:
            assert self._file is not None
            picture = picture_grid(np.stack(self._rendered.frames()))
            self._file.write(picture)
            n_written = self._max_frames - self._frames_left
            if self._small and n_written % _SMALL_EVERY == 0 and n_written < _SMALL_FRAMES:
                step = -(-picture.shape[1] // _SMALL_WIDTH)
                self._small.write(picture[::step, ::step])
        except Exception as error:  # environments may raise what they like when they draw
            self._give_up(error)
            return
        self._frames_left -= 1
        # To render takes longer than a step, so a full video stops it for the rest of the evaluation.
        if not self._frames_left:
            self._sampler.watch = None

    def after_evaluation(self, elapsed_steps: int, trajs: Sequence[TrajInfo]) -> None:
        """Complete the video, and remove the oldest videos if there are too many."""
        file, self._file = self._file, None
        if file is None:
            return
        self._sampler.watch = None
        small, self._small = self._small, None
        try:
            file.close()
            if small is not None:
                small.close()
            self._videos.prune()
            if small is not None and small.path.exists():
                self._runner.logger.picture(elapsed_steps, "evaluation", small.path.read_bytes())
                small.path.unlink()
        except OSError as error:
            if small is not None:
                small.discard()
            self._warn(error)

    def _give_up(self, error: Exception) -> None:
        # For the rest of the evaluation, or the warning would come again with each step.
        self.close()
        self._warn(error)

    def _warn(self, error: Exception) -> None:
        self._runner.logger.warn(f"no video of this evaluation: {type(error).__name__}: {error}")

    def state(self) -> State:
        """Return the number of evaluations."""
        return {"n_evaluations": self._n_evaluations}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._n_evaluations = int(state["n_evaluations"])

    def close(self) -> None:
        """Discard a video that was interrupted by an error or a signal."""
        files, self._file, self._small = (self._file, self._small), None, None
        for file in files:
            if file is not None:
                self._sampler.watch = None
                file.discard()
