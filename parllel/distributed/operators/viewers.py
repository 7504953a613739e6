"""Viewers of an episode's pictures, such as a film or a page.

    before each reset and step    wants: asked of every viewer; if one does, the command requests a picture
                                  wants_last: asked of the others; if one does, the command requests a picture
                                  only in case the episode ends
    after it                      see: called on the viewers that wanted the picture

The thread that plays the operator makes all these calls. Pictures that no viewer wants are not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Viewer(Protocol):
    """Receiver of pictures of operators and games."""

    def may_view(self, name: str) -> bool:
        """Return whether the viewer may ever want a picture of an operator.

        Called once, before the first episode.
        """

    def wants(self, name: str, episode: int) -> bool:
        """Return whether the viewer wants a picture of the state after the next command."""

    def wants_last(self, name: str, episode: int) -> bool:
        """Return whether the viewer wants that picture if the next command ends the episode."""

    def see(self, name: str, env_id: str, episode: int, step: int, payload: Any) -> None:
        """Receive a picture.

        step: number of steps taken in the episode; 0 after the reset.
        payload: the `render_payload` of a worker's reply. None if the worker drew nothing.
        """


class EpisodeViewers:
    """The viewers of one episode.

    Args:
        viewers: all viewers.
        name: name of the operator or game.
        env_id: id of its environment.
        episode: number of the episode.
    """

    def __init__(self, viewers: Sequence[Viewer], name: str, env_id: str, episode: int) -> None:
        self._viewers = viewers
        self._wanting, self._wanting_last = list[Viewer](), list[Viewer]()
        self._name, self._env_id, self._episode = name, env_id, episode

    def ask(self) -> tuple[bool, bool]:
        """Ask all viewers whether they want the next picture.

        Returns whether any viewer wants it in any case, and whether any wants it only if the
        episode ends.
        """
        self._wanting, self._wanting_last = [], []
        for viewer in self._viewers:
            if viewer.wants(self._name, self._episode):
                self._wanting.append(viewer)
            elif viewer.wants_last(self._name, self._episode):
                self._wanting_last.append(viewer)
        return bool(self._wanting), bool(self._wanting_last)

    def show(self, step: int, payload: Any, *, is_last: bool = False) -> None:
        """Pass a picture to the viewers that wanted it."""
        for viewer in (*self._wanting, *(self._wanting_last if is_last else ())):
            viewer.see(self._name, self._env_id, self._episode, step, payload)
