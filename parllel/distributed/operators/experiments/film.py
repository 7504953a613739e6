"""Videos of episodes, with all operators of an environment side by side.

threads of operators    wants, see: pictures as they arrive, as PNG, kept in memory
the main thread         write, when all have ended
"""

from __future__ import annotations

import base64
import io
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.distributed.operators.experiments.results import label_of

_GAP = 4  # pixels between operators
_TITLE = 16  # pixels above each operator for its name
_MAX_BYTES = 1 << 30  # of pictures kept in memory
_MAX_PIXELS = 1 << 24  # of one picture
Picture = NDArray[np.uint8]


class Film:
    """Keeps the frames of the first episodes and writes a video of each.

    Args:
        episodes: the number of episodes to film.
    """

    def __init__(self, episodes: int) -> None:
        self._episodes, self._first = episodes, 0
        self._lock = threading.Lock()
        # By environment and episode, then by operator.
        self._frames: dict[tuple[str, int], dict[str, list[Any]]] = {}
        self._n_bytes = 0
        self._notes: dict[str, None] = {}

    def leave_out(self, n_episodes: int) -> None:
        """Skip the first episodes, which were played before the experiment was resumed."""
        self._first = n_episodes
        if n_episodes > 0 and self._episodes:
            last = min(n_episodes, self._episodes) - 1
            some = "episode 0" if last == 0 else f"episodes 0 to {last}"
            self._notes[f"no video of {some}: played before the experiment was resumed"] = None

    def may_view(self, name: str) -> bool:
        """Return whether anything is filmed."""
        return self._episodes > 0

    def wants(self, name: str, episode: int) -> bool:
        """Return whether an episode is filmed."""
        return self._first <= episode < self._episodes

    def wants_last(self, name: str, episode: int) -> bool:
        """Return False, because `wants` already requests all pictures of a filmed episode."""
        return False

    def see(self, name: str, env_id: str, episode: int, step: int, payload: Any) -> None:
        """Store a frame, the `render_payload` of a worker's reply."""
        with self._lock:
            if not isinstance(payload, dict):
                self._notes[f"no video of {name}: its worker sends no frames"] = None
                return
            if self._n_bytes > _MAX_BYTES:
                self._notes["videos were cut: their frames take more than 1 GiB"] = None
                return
            # Nested lists, as other workers send them, take far more memory as Python objects.
            data = payload.get("data") if payload.get("mode") == "png" else _pixels(payload)
            if not isinstance(data, (str, np.ndarray)):
                self._notes[f"no video of {name}: its frames cannot be read"] = None
                return
            self._n_bytes += len(data) if isinstance(data, str) else data.nbytes
            frames_by_operator = self._frames.setdefault((env_id, episode), {})
            frames_by_operator.setdefault(name, []).append(data)

    def write(self, folder: Path) -> list[str]:
        """Write a video for each environment and episode. Returns notes on what could not be filmed."""
        # Imported here: it imports cages and samplers, and most experiments film nothing.
        from parllel.pictures.video_file import write_video

        for (env_id, episode), by_operator in sorted(self._frames.items()):
            try:
                write_video(video_path(folder, env_id, episode), _side_by_side(by_operator))
            except Exception as error:
                # Frames come from workers and may be anything; the results are valid without them.
                self._notes[f"no video of {env_id}: {type(error).__name__}: {error}"] = None
        return list(self._notes)


def video_path(folder: Path, env_id: str, episode: int) -> Path:
    """Return the path of the video of an episode in a folder of videos.

    Its first picture is that of the reset, the next one that of step 1, and so on.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", label_of(env_id)).strip("-")
    return folder / f"{name}-episode-{episode}.mp4"


def _side_by_side(by_operator: dict[str, list[Any]]) -> Iterator[Picture]:
    """Yield pictures of all operators at the same step. An ended episode keeps its last picture."""
    names = sorted(by_operator)
    firsts = [_decoded(by_operator[name][0]) for name in names]
    height = max(picture.shape[0] for picture in firsts) + _TITLE
    width = sum(picture.shape[1] + _GAP for picture in firsts) - _GAP
    canvas = np.zeros((height, width, 3), np.uint8)
    lefts = []
    left = 0
    for name, first in zip(names, firsts, strict=True):
        lefts.append(left)
        _write_title(canvas[:_TITLE, left : left + first.shape[1]], name)
        left += first.shape[1] + _GAP
    for step in range(max(len(frames) for frames in by_operator.values())):
        for name, left, first in zip(names, lefts, firsts, strict=True):
            frames = by_operator[name]
            if step < len(frames):
                picture = _decoded(frames[step])[: first.shape[0], : first.shape[1]]
                rows, columns = picture.shape[:2]
                canvas[_TITLE : _TITLE + rows, left : left + columns] = picture
        yield canvas


def _decoded(data: str | Picture) -> Picture:
    from PIL import Image

    if not isinstance(data, str):
        return data
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        # Checked before decoding: a file of a few kilobytes can contain hundreds of millions of pixels.
        if image.width * image.height > _MAX_PIXELS:
            raise ValueError(
                f"expected a picture of at most {_MAX_PIXELS:,} pixels, got "
                f"{image.width}x{image.height}"
            )
        return np.asarray(image.convert("RGB"))


def _pixels(payload: dict[str, Any]) -> Picture | None:
    try:
        found = np.asarray(payload.get("rgb"), np.uint8)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found.ndim == 3 and found.shape[2] == 3 else None


def _write_title(space: Picture, name: str) -> None:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (space.shape[1], space.shape[0]))
    ImageDraw.Draw(image).text((2, 2), name, fill=(255, 255, 255))
    space[:] = np.asarray(image)
