"""Replays of episodes: as a file, as text for a terminal and as a picture.

The file format is that of kaggle-environments, `schema_version` 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.distributed.remote.games.episode import Row
from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.position import Position
from parllel.distributed.remote.plain_values import plain
from parllel.version import __version__

_IN_SPECIFICATION = (
    *("action", "agents", "configuration", "info", "observation", "reward", "status"),
)


def replay_of(
    specification: Mapping[str, Any],
    *,
    episode_id: str,
    configuration: Mapping[str, Any],
    info: Mapping[str, Any],
    steps: Sequence[Row],
) -> dict[str, Any]:
    """Build a replay, which shares the given steps.

    An episode that was stopped has no final rewards. Its steps contain the rewards so far.
    """
    last = steps[-1]
    is_stopped = bool(info.get("stopped"))
    return {
        "id": episode_id,
        "name": specification["name"],
        "title": specification["title"],
        "description": specification["description"],
        "version": specification["version"],
        "module_version": __version__,
        "configuration": plain(dict(configuration)),
        "specification": {k: v for k, v in specification.items() if k in _IN_SPECIFICATION},
        "steps": list(steps),
        "rewards": [None if is_stopped else state["reward"] for state in last],
        "statuses": [state["status"] for state in last],
        "schema_version": 1,
        "info": plain(dict(info)),
    }


def checked_logs(logs: Any, n_steps: int) -> list[list[dict[str, Any]]]:
    """Check untrusted logs, and return a copy.

    They must have a list per step, with one object per agent that has a log.

    Raises:
        ValueError: if the logs have another form.
    """
    if not logs:
        return [[] for _ in range(n_steps)]
    rows = plain(logs)
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and all(isinstance(log, dict) for log in row) for row in rows
    ):
        raise ValueError("logs: expected a list with one list of JSON objects per step")
    made: list[list[dict[str, Any]]] = rows
    return made


def last_text(positions: Iterator[tuple[Game, Position]]) -> str:
    """Return the last position as text for a terminal."""
    text = ""
    for game, position in positions:
        text = game.text(position)
    return text


def last_picture(name: str, positions: Iterator[tuple[Game, Position]]) -> NDArray[np.uint8]:
    """Return the last position as uint8 [H, W, 3].

    name: name of the environment for error messages.

    Raises:
        ValueError: if the game has no such picture.
    """
    picture = None
    for game, position in positions:
        # For every position, because some games can only draw the current one.
        picture = game.picture(position)
    if not isinstance(picture, np.ndarray):
        got = "no picture" if picture is None else "SVG, which --render html shows"
        raise ValueError(f"{name}: expected a game that draws pixels, got {got}")
    return picture
