"""Close games that draw only when no other game of this process draws any more.

    threads that make games    no_game_ends: until the new one counts
    threads that play them     opens, close_game

Games of PettingZoo draw with pygame, and their `close` calls `pygame.quit`, which takes the fonts of all
others with it: in the middle of a picture, if these draw in other threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

# Reentrant: a game that is refused after it was made is closed within `no_game_ends`.
_lock = threading.RLock()
_drawing: set[int] = set()  # by id, of those that are open
_closing: list[Any] = []


@contextmanager
def no_game_ends() -> Iterator[None]:
    """Let no game be closed meanwhile: what a game makes of pygame while it is made would be gone."""
    with _lock:
        yield


def opens(env: Any) -> None:
    """Note that a game is open, which may draw."""
    if getattr(env, "render_mode", None) is not None:
        with _lock:
            _drawing.add(id(env))


def close_game(env: Any) -> None:
    """Close a game: at once if it draws nothing; else, with all that wait, when none is open."""
    with _lock:
        waiting = [env]
        if id(env) in _drawing:
            _drawing.discard(id(env))
            _closing.append(env)
            waiting = []
            if not _drawing:
                waiting, _closing[:] = list(_closing), []
        # Each whatever the others raise.
        with ExitStack() as stack:
            for one in waiting:
                stack.callback(one.close)
