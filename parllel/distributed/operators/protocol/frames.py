"""Frames in replies: a picture or text of the environment, rendered only when a command requests it."""

from __future__ import annotations

import base64
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

_MODES = ("rgb_array", "ansi")


def can_render(env: Any) -> bool:
    """Return whether a Gymnasium or PettingZoo environment renders pictures or text."""
    return getattr(env, "render_mode", None) in _MODES


def check_can_render(env: gym.Env[Any, Any]) -> None:
    """Raise ValueError if an environment renders neither pictures nor text."""
    if not can_render(env):
        raise ValueError(
            "frame: expected an environment with the render mode rgb_array, got "
            f'{env.render_mode}; create it with {{"render_mode": "rgb_array"}} in env_kwargs'
        )


def frame_of(env: Any, mode: str) -> dict[str, Any]:
    """Render an environment, as the `render_payload` of a reply.

    mode: "png" stores a base64-encoded PNG file in `data`; "rgb" stores nested lists [H][W][3] in
        `rgb`. In either mode, an environment with the render mode "ansi" yields `text`.

    Raises:
        ValueError: if `render` returns anything but uint8 [H, W, 3], [H, W, 4] or [H, W].
    """
    if env.render_mode == "ansi":
        return text_frame(str(env.render()))
    picture = _checked(env.render())
    height, width = picture.shape[:2]
    if mode == "rgb":
        shown: dict[str, Any] = {"mode": "rgb", "rgb": picture.tolist()}
    else:
        # Imported here: most episodes are played without pictures.
        from parllel.pictures.png import png_bytes

        shown = {"mode": "png", "data": base64.b64encode(png_bytes(picture)).decode()}
    return {**shown, "width": width, "height": height}


def text_frame(text: str) -> dict[str, Any]:
    """Return text as the `render_payload` of a reply."""
    return {"mode": "text", "text": text}


def _checked(shown: Any) -> NDArray[np.uint8]:
    picture = np.asarray(shown)
    if picture.dtype == np.uint8 and picture.ndim == 2:
        picture = np.repeat(picture[..., np.newaxis], 3, -1)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (3, 4):
        raise ValueError(
            f"frame: expected uint8 [height, width, 3] from the environment's render, got {picture.dtype} "
            f"{list(picture.shape)}"
        )
    # Drop the alpha channel: the protocol's nested lists have three numbers per pixel.
    return np.ascontiguousarray(picture[..., :3])
