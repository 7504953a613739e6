"""Record videos of what the agent sees in training, and when to."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.transforms.transform import BatchTransform, optional_body_of
from parllel.types import State

# Given the number of the batch in which a clip begins, and the clip, uint8 [N, H, W, 3].
ClipWriter: TypeAlias = Callable[[int, NDArray[np.uint8]], None]

TERMINATED = (230, 40, 40)  # red: the episode is over
TRUNCATED = (50, 110, 240)  # blue: it was cut off

# Takes the number of environment steps so far, and the number of the evaluation or batch, from 0.
RecordingSchedule: TypeAlias = Callable[[int, int], bool]


def capped_cubic(elapsed_steps: int, number: int) -> bool:
    """Record numbers 0, 1, 8, 27, ... and from 1000 on every 1000th, so most often early in training.

    This is Gymnasium's `capped_cubic_video_schedule`.
    """
    if number >= 1000:
        return number % 1000 == 0
    # Rounded, as floating point has no exact cube roots: 64 ** (1 / 3) is below 4.
    root: int = round(number ** (1 / 3))
    return root**3 == number


@dataclass(frozen=True)
class EveryNth:
    """The schedule returned by `every_nth`. It is a class because nested functions cannot be pickled."""

    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise ValueError(f"every_nth: n: expected an int of at least 1, got {self.n!r}")

    def __call__(self, elapsed_steps: int, number: int) -> bool:
        """Return whether `number` is a multiple of n."""
        return number % self.n == 0


def every_nth(n: int) -> RecordingSchedule:
    """Record numbers 0, n, 2n, ... Raises ValueError unless `n` is an int of at least 1."""
    return EveryNth(n)


def check_schedule(who: str, schedule: Any) -> None:
    """Raise TypeError for anything but a function, such as a bare number."""
    if not callable(schedule):
        raise TypeError(
            f"{who}: schedule: expected a function such as every_nth(10), got {schedule!r}"
        )


class RecordVideo(BatchTransform):
    """Makes clips of the image observations of some columns, and passes them to `write`.

    It reads only finished batches, so it does not slow down steps, and it writes no field. A clip
    begins with a batch that the schedule chooses, and continues through the next batches until it
    has `n_frames`. It is then passed to `write`, before training continues. The columns are shown
    in a grid. The last picture of an episode has a thin border: red if the episode terminated, blue
    if it was truncated. If there is a field `env.valid`, cells without a sample are black, and rows
    without any sample are left out.

    Args:
        write: function called with the number of the batch in which the clip begins and the clip,
            uint8 [N, H, W, 3]. `parllel.runners.VideoFolder` is one. If it raises OSError, the clip
            is lost with a Python warning, and training continues.
        source: path of the observations, [T, B, ...].
        columns: numbers of the environments to show; numbers from B on are ignored.
        schedule: function that decides whether to begin a clip. It is called with the numbers of
            environment steps (only valid ones, if there is a field `env.valid`) and of batches
            before the current batch. It is not called while a clip is being made.
        n_frames: number of frames in a clip.
        pictures: function that receives the observations to show, [T, n, ...], and returns
            pictures, uint8 [T, n, H, W, 3]; defaults to `pictures_of`.

    The state holds the numbers of batches and steps. A clip that is unfinished when a run stops is
    lost.

    Raises:
        ValueError: if no columns are given, a column is given twice, or `n_frames` is less than
            one.
        TypeError: if `schedule` is not a function.
    """

    def __init__(
        self,
        write: ClipWriter,
        *,
        source: str = "env.observation",
        columns: Sequence[int] = (0, 1, 2, 3),
        schedule: RecordingSchedule = capped_cubic,
        n_frames: int = 200,
        pictures: Callable[[NDArray[Any]], NDArray[np.uint8]] | None = None,
    ) -> None:
        if not columns or len(set(columns)) != len(columns) or min(columns) < 0:
            raise ValueError(f"RecordVideo: columns: expected different numbers, got {columns!r}")
        if n_frames < 1:
            raise ValueError(f"RecordVideo: n_frames: expected at least 1, got {n_frames}")
        self._write = write
        self._source = source
        self.reads = (source,)
        self._columns = list(columns)
        check_schedule("RecordVideo", schedule)
        self._schedule = schedule
        self._n_frames = n_frames
        self._pictures = pictures_of if pictures is None else pictures
        self._n_batches = self._n_steps = 0
        self._begun = 0  # number of the batch in which the present clip began
        self._frames: list[NDArray[np.uint8]] = []

    def bind(self, samples: Samples) -> None:
        """Check that the source can be shown. Raises ValueError if not."""
        source = field_at(samples, self._source)
        if not isinstance(source, Array):
            raise ValueError(f"RecordVideo: {self._source}: expected one array, got {source!r}")
        if not self._shown(source.shape[1]):
            raise ValueError(
                f"RecordVideo: columns: expected at least one number below B={source.shape[1]}, "
                f"got {self._columns}"
            )
        # Convert an example, so that a wrong shape raises now and not after the first batch.
        self._checked(np.zeros((1, 1, *source.shape[2:]), source.dtype))

    def use_batch(self, samples: Samples, number: int) -> None:
        """Do nothing, since this transform keeps no views."""

    def transform_batch(self, samples: Samples) -> None:
        """Add the batch to the clip, if one is being made or is due. The samples are not changed."""
        T, B = samples.env.reward.shape[:2]
        valid = optional_body_of(samples, "env.valid")
        number, steps = self._n_batches, self._n_steps
        self._n_batches += 1
        self._n_steps += T * B if valid is None else int(np.count_nonzero(valid))
        if not self._frames:
            if not self._schedule(steps, number):
                return
            self._begun = number
        columns = self._shown(B)
        shown = None if valid is None else valid[:, columns]
        self._frames.append(self._frames_of(samples, columns, shown))
        if self._length >= self._n_frames:
            self._hand_over()

    @property
    def _length(self) -> int:
        return sum(map(len, self._frames))

    def _shown(self, B: int) -> list[int]:
        return [b for b in self._columns if b < B]

    def _frames_of(
        self, samples: Samples, columns: list[int], valid: NDArray[np.bool_] | None
    ) -> NDArray[np.uint8]:
        """Return the frames of a batch that the clip still needs, [n, H, W, 3], in new memory."""
        source = field_at(samples, self._source)
        stop = wanted = self._n_frames - self._length
        if valid is not None:  # rows without samples give no frames, so more rows may be needed
            # The row in which the wanted number of rows with a sample is reached.
            stop = int(np.searchsorted(np.cumsum(valid.any(axis=1)), wanted)) + 1
            valid = valid[:stop]
        # A copy, as borders are drawn into it; of these cells only, as observations may be large.
        # Up to the end of the body: a slice that ends at T + 1 would take the padding row too.
        observations = np.array(source[: min(stop, len(source))][:, columns])
        pictures = np.require(self._checked(observations), requirements="W")
        for path, colour in (("env.terminated", TERMINATED), ("env.truncated", TRUNCATED)):
            ends = optional_body_of(samples, path)
            if ends is not None:
                _draw_border(pictures, ends[:stop, columns], colour)
        if valid is not None:
            pictures[~valid] = 0
            pictures = pictures[valid.any(axis=1)]
        return picture_grid(pictures)

    def _checked(self, observations: NDArray[Any]) -> NDArray[np.uint8]:
        try:
            pictures = self._pictures(observations)
        except ValueError as error:
            raise ValueError(f"RecordVideo: {self._source}: {error}") from error
        expected = (*observations.shape[:2], 3)
        found = (*pictures.shape[:2], pictures.shape[-1])
        if pictures.dtype != np.uint8 or pictures.ndim != 5 or found != expected:
            raise ValueError(
                f"RecordVideo: pictures: expected uint8 [{expected[0]}, {expected[1]}, H, W, 3], "
                f"got {pictures.dtype} {list(pictures.shape)}"
            )
        return pictures

    def _hand_over(self) -> None:
        # Emptied first: a clip that cannot be written must not grow with every batch to come.
        clip, self._frames = np.concatenate(self._frames), []
        try:
            self._write(self._begun, clip)
        # A full disk is no reason to end hours of training.
        except OSError as error:
            warnings.warn(
                f"RecordVideo: the clip of batch {self._begun} is lost: {error}",
                RuntimeWarning,
                stacklevel=2,
            )

    def state(self) -> State:
        """Return the numbers of batches and steps."""
        return {"n_batches": self._n_batches, "n_steps": self._n_steps}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. An unfinished clip is dropped."""
        self._n_batches, self._n_steps = int(state["n_batches"]), int(state["n_steps"])
        self._frames = []


def pictures_of(observations: NDArray[Any]) -> NDArray[np.uint8]:
    """Return uint8 observations [T, n, ...] as pictures [T, n, H, W, 3].

    Cells may be [H, W], [H, W, 1], [H, W, 3], stacks of grey frames [k, H, W], or stacks of frames
    [k, H, W, 1 or 3]. Only the last and newest frame of a stack is shown.

    Raises:
        ValueError: for observations of any other shape or dtype.
    """
    shape = observations.shape[2:]
    if observations.dtype != np.uint8 or len(shape) not in (2, 3, 4):
        raise ValueError(
            "expected images, uint8 [H, W], [H, W, 1 or 3], [stack, H, W] or [stack, H, W, 1 or 3], "
            f"got {observations.dtype} {list(shape)}; `pictures` converts others"
        )
    # A last dimension of 1 or 3 is read as colours, also in a picture that might be a stack of that width.
    coloured = len(shape) > 2 and shape[-1] in (1, 3)
    if len(shape) == 4:
        if not coloured:
            raise ValueError(f"expected 1 or 3 colours in the last dimension, got {list(shape)}")
        observations = observations[:, :, -1]
    elif len(shape) == 3 and not coloured:
        observations = observations[:, :, -1]
    if not coloured:
        observations = observations[..., np.newaxis]
    if observations.shape[-1] == 1:
        observations = np.repeat(observations, 3, axis=-1)
    pictures: NDArray[np.uint8] = observations
    return pictures


def _draw_border(
    pictures: NDArray[np.uint8], where: NDArray[np.bool_], colour: tuple[int, int, int]
) -> None:
    """Draw a border into the pictures [T, n, H, W, 3] where `where` [T, n] is true."""
    # Indexing by a mask copies, so the result is written back below.
    chosen = pictures[where]
    # In proportion: a border of one pixel would not be seen in a large picture.
    thickness = max(1, min(chosen.shape[1:3]) // 40)
    for edge in (slice(None, thickness), slice(-thickness, None)):
        chosen[:, edge, :] = colour
        chosen[:, :, edge] = colour
    pictures[where] = chosen


def picture_grid(pictures: NDArray[Any]) -> NDArray[Any]:
    """Return pictures [..., n, H, W, C] as grids [..., rows * H, columns * W, C], in new memory.

    Pictures fill the grid row by row; there are as many columns as rows, or one more. Empty places are black.

    Raises:
        ValueError: if there are fewer than four dimensions, or no pictures.
    """
    if pictures.ndim < 4 or pictures.shape[-4] < 1:
        raise ValueError(f"pictures: expected [..., n, H, W, C], got shape {pictures.shape}")
    *lead, n, height, width, channels = pictures.shape
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    grid = np.zeros((*lead, rows * height, columns * width, channels), pictures.dtype)
    for i in range(n):
        row, column = divmod(i, columns)
        above, left = row * height, column * width
        place = grid[..., above : above + height, left : left + width, :]
        place[...] = pictures[..., i, :, :, :]
    return grid
