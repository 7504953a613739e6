"""A viewer of pictures, for tests."""

from __future__ import annotations


class KeepingViewer:
    """Wants the pictures of all episodes, or of some, and keeps everything.

    Attributes:
        seen: (name, environment, episode, step, payload) of each.
    """

    def __init__(self, episodes=None):
        self.seen = []
        self._episodes = episodes

    def may_view(self, name):
        return True

    def wants(self, name, episode):
        return self._episodes is None or episode in self._episodes

    def wants_last(self, name, episode):
        return False

    def see(self, *what):
        self.seen.append(what)
