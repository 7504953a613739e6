"""Who looks at the pictures of an episode: a film, a page.

    before a reset, and before each step    wants: of every viewer; if one does, the picture is asked for
                                            wants_last: of the others; if one does, it is asked for where the
                                            episode ends with the step
    after it                                see: of those that wanted it

Both are called by the thread that plays the operator. Nothing is drawn that no viewer wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Viewer(Protocol):
    """What may want pictures of operators and games."""

    def may_view(self, name: str) -> bool:
        """Return whether it will ever want a picture of an operator; asked once, before its first episode."""

    def wants(self, name: str, episode: int) -> bool:
        """Return whether it wants the picture that follows the next command."""

    def wants_last(self, name: str, episode: int) -> bool:
        """Return whether it wants the picture that follows the next command if that ends the episode."""

    def see(self, name: str, env_id: str, episode: int, step: int, payload: Any) -> None:
        """Take a picture, as the reply of a worker has it; None where it drew none.

        step: how many steps the episode has; 0 after the reset.
        """


class EpisodeViewers:
    """The viewers of one episode.

    Args:
        viewers: all there are.
        name: of the operator or game.
        env_id: of its environment.
        episode: its number.
    """

    def __init__(self, viewers: Sequence[Viewer], name: str, env_id: str, episode: int) -> None:
        self._viewers = viewers
        self._wanting, self._wanting_last = list[Viewer](), list[Viewer]()
        self._name, self._env_id, self._episode = name, env_id, episode

    def ask(self) -> tuple[bool, bool]:
        """Ask all viewers; return whether one wants the next picture, and one only if it is the last."""
        self._wanting, self._wanting_last = [], []
        for one in self._viewers:
            if one.wants(self._name, self._episode):
                self._wanting.append(one)
            elif one.wants_last(self._name, self._episode):
                self._wanting_last.append(one)
        return bool(self._wanting), bool(self._wanting_last)

    def show(self, step: int, payload: Any, *, is_last: bool = False) -> None:
        """Show a picture to those that wanted it."""
        for viewer in (*self._wanting, *(self._wanting_last if is_last else ())):
            viewer.see(self._name, self._env_id, self._episode, step, payload)
