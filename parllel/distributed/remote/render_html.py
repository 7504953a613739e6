"""Self-contained HTML page that plays an episode.

Output, reasons and actions of agents may be hostile. The page contains them as JSON without `<`, and its
script inserts them as text. Pictures are embedded as images, in which no script runs. The page's content
security policy allows only this script, and no requests.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.distributed.remote.games.game import Game, Picture
from parllel.distributed.remote.games.position import Position
from parllel.distributed.wire.json_text import json_bytes
from parllel.pictures.png import png_bytes

_LARGEST = 400  # pixels per side; larger pictures are scaled down
_MAX_BYTES = 48 * 2**20  # of all pictures; beyond it, every second one is dropped


def episode_page(
    replay: Mapping[str, Any],
    logs: Sequence[Sequence[Mapping[str, Any]]],
    positions: Iterator[tuple[Game, Position]],
) -> str:
    """Return the page of an episode.

    replay: the replay, as returned by `Environment.to_json`.
    logs: logs indexed by step and agent.
    positions: the positions yielded by `Environment.positions`, one per step.
    """
    pictures, texts = _Pictures(), []
    for game, position in positions:
        picture = game.picture(position)
        texts.append(None if picture is not None else game.text(position))
        pictures.add(picture)
    data = {
        "title": str(replay["title"]),
        "about": _about(replay),
        "agents": _names(replay),
        "speed": "30" if pictures.drawn else "2",
        "steps": [[_shown(state) for state in row] for row in replay["steps"]],
        "logs": [[dict(log) for log in row] for row in logs],
        "pictures": pictures.urls,
        "picture_of": pictures.numbers(),
        # Only steps without a picture show text.
        "texts": texts if any(text is not None for text in texts) else [],
    }
    style, script = _part("replay_page.css"), _part("replay_page.js")
    page = _part("replay_page.html")
    for name, value in (
        ("STYLE_HASH", _hash(style)),
        ("SCRIPT_HASH", _hash(script)),
        ("TITLE", html.escape(str(replay["title"]))),
        ("STYLE", style),
        ("SCRIPT", script),
    ):
        page = page.replace(f"@{name}@", value)
    # Inserted last, as the episode may contain any of the placeholders.
    before, _, after = page.partition("@EPISODE@")
    return before + _as_script(data) + after


class _Pictures:
    """Distinct pictures of an episode as data URLs, and the picture shown at each step."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.drawn = False  # whether any picture consists of pixels rather than SVG
        self._shown: list[int] = []  # index of each step's picture, -1 for none
        self._known: dict[bytes, int] = {}
        self._every = 1
        self._n_bytes = 0

    def add(self, picture: Picture | None) -> None:
        """Add the picture of the next step, or None."""
        if picture is None:
            self._shown.append(-1)
            return
        self.drawn = self.drawn or not isinstance(picture, str)
        step = len(self._shown)
        if step % self._every and self._shown[-1] >= 0:
            self._shown.append(self._shown[-1])
            return
        url = _url(picture)
        key = hashlib.sha256(url.encode()).digest()
        if key not in self._known:
            self._known[key] = len(self.urls)
            self.urls.append(url)
            self._n_bytes += len(url)
        self._shown.append(self._known[key])
        if self._n_bytes > _MAX_BYTES:
            self._thin()

    def numbers(self) -> list[int]:
        """Return the index of each step's picture, -1 for none."""
        return list(self._shown)

    def _thin(self) -> None:
        """Drop every second picture; its steps show the one before."""
        self._every *= 2
        kept = [self._shown[step - step % self._every] for step in range(len(self._shown))]
        numbers = {old: new for new, old in enumerate(sorted(set(kept) - {-1}))}
        self.urls = [self.urls[old] for old in numbers]
        self._known = {hashlib.sha256(url.encode()).digest(): n for n, url in enumerate(self.urls)}
        self._shown = [numbers.get(old, -1) for old in kept]
        self._n_bytes = sum(map(len, self.urls))


def _url(picture: Picture) -> str:
    if isinstance(picture, str):
        kind, data = "svg+xml", picture.encode()
    else:
        kind, data = "png", png_bytes(_reduced(picture))
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _reduced(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Scale a picture down to sides of at most `_LARGEST` pixels, by averaging squares."""
    height, width, _ = picture.shape
    k = -(-max(height, width) // _LARGEST)
    if k == 1:
        return picture
    cut = picture[: height // k * k, : width // k * k]
    squares = cut.reshape(height // k, k, width // k, k, 3)
    means: NDArray[np.uint8] = squares.mean((1, 3)).astype(np.uint8)
    return means


def _shown(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an agent's state that the page shows."""
    reason = state["info"].get("reason")
    return {
        "status": state["status"],
        "reward": state["reward"],
        "action": state["action"],
        "reason": None if reason is None else str(reason),
        "left_s": state["observation"].get("remainingOverageTime"),
    }


def _about(replay: Mapping[str, Any]) -> str:
    stopped = replay["info"].get("stopped")
    parts = [f"{replay['name']} {replay['version']}", f"{len(replay['steps']) - 1} steps"]
    return ", ".join([*parts, *([f"stopped {stopped}"] if stopped else [])])


def _names(replay: Mapping[str, Any]) -> list[str]:
    """Return the agents' names: their teams, where known."""
    n = len(replay["steps"][0])
    teams = replay["info"].get("TeamNames")
    named = isinstance(teams, list) and len(teams) == n
    return [str(teams[i]) if named else f"Agent {i}" for i in range(n)]


def _as_script(data: Mapping[str, Any]) -> str:
    """Return JSON that cannot end its script element, whatever its strings contain."""
    text = json_bytes(data).decode()
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _part(name: str) -> str:
    return files("parllel.distributed.remote").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
