"""The last position of an episode, as text and as a picture."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.position import Position


def last_text(positions: Iterator[tuple[Game, Position]]) -> str:
    """Return the last position as text for a terminal."""
    text = ""
    for game, position in positions:
        text = game.text(position)
    return text


def last_picture(name: str, positions: Iterator[tuple[Game, Position]]) -> NDArray[np.uint8]:
    """Return the last position as uint8 [H, W, 3].

    name: of the environment, for messages.

    Raises:
        ValueError: if the game has no such picture.
    """
    picture = None
    for game, position in positions:
        # Of each, as some draw only where they are.
        picture = game.picture(position)
    if not isinstance(picture, np.ndarray):
        what = "none" if picture is None else "SVG, which --render html shows"
        raise ValueError(
            f"{name}: expected a game with pictures of pixels, its pictures are {what}"
        )
    return picture
