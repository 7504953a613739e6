"""Pictures of one environment of this process, and what holds for pictures of any environment."""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.errors import ParllelError, WrongStateError

Frame: TypeAlias = NDArray[np.uint8]  # [H, W, 3]
DEFAULT_FPS = 30.0


class RenderingError(ParllelError):
    """An environment failed to render. Its own exception is the cause."""


class RenderedEnv:
    """Renders an environment.

    Args:
        env: an environment in this process.
        name: name of the environment in messages.

    Attributes:
        fps: pictures per second at which it looks natural, as it says itself; 30 if it does not.

    Raises:
        WrongStateError: if it was not made with render_mode="rgb_array".
    """

    def __init__(self, env: gym.Env[Any, Any], name: str = "environment") -> None:
        check_mode(getattr(env, "render_mode", None), name)
        self.fps = fps_in(getattr(env, "metadata", None))
        self._env, self._name = env, name

    def frame(self) -> Frame:
        """Return a picture of it as it is now, uint8 [H, W, 3]; the environment's own memory.

        Raises:
            RenderingError: if the environment raises, for lack of a graphics library say.
            ValueError: if it returns something else.
        """
        try:
            picture: Any = self._env.render()
        except Exception as error:
            raise RenderingError(
                f"{self._name} could not be drawn: {type(error).__name__}: {error}"
            ) from error
        check_picture(picture, f"{self._name}: render")
        frame: Frame = picture
        return frame


def check_mode(mode: Any, name: str) -> None:
    """Raise WrongStateError unless an environment of this render mode returns pictures."""
    # Without a mode render() would only warn and return None.
    if mode != "rgb_array":
        raise WrongStateError(
            f"{name}: cannot be drawn, because its render_mode is {mode!r}; create it with "
            'render_mode="rgb_array"'
        )


def check_picture(picture: Any, of: str) -> None:
    """Raise ValueError unless it is a picture, uint8 [H, W, 3].

    of: what the message begins with: the environment or file, and what was asked of it.
    """
    shape: tuple[int, ...] = getattr(picture, "shape", ())
    is_picture = getattr(picture, "dtype", None) == np.uint8 and len(shape) == 3 and shape[2] == 3
    if not is_picture or 0 in shape:
        what = f"{picture.dtype} {list(shape)}" if shape else repr(picture)[:100]
        raise ValueError(f"{of}: expected a picture, uint8 [H, W, 3], got {what}")


def fps_in(metadata: Any) -> float:
    """Return the pictures per second that the metadata of an environment say."""
    fps = metadata.get("render_fps") if isinstance(metadata, dict) else None
    return float(fps or DEFAULT_FPS)
