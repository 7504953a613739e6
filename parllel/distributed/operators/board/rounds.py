"""The seeds of a board's episodes: those of one number share a seed, whichever card plays them."""

from __future__ import annotations

from collections.abc import Iterable


class Rounds:
    """What has been played, by number; used within the board's lock.

    Args:
        seeds: of the rounds before.
    """

    def __init__(self, seeds: Iterable[int] = ()) -> None:
        self.seeds = list(seeds)

    @property
    def last(self) -> int | None:
        """The seed of the newest round."""
        return self.seeds[-1] if self.seeds else None

    def new(self, seed: int | None) -> tuple[int, int]:
        """Return number and seed of a new round; None is the seed after the last."""
        if seed is None:
            seed = self.seeds[-1] + 1 if self.seeds else 0
        self.seeds.append(seed)
        return len(self.seeds) - 1, seed

    def after(self, number: int | None) -> tuple[int, int]:
        """Return the round after one, which others may have begun already, so that results come in pairs."""
        following = -1 if number is None else number + 1
        if not 0 <= following < len(self.seeds):
            return self.new(None)
        return following, self.seeds[following]
