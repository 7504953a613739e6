"""Who looks at an experiment while it is played, and may hold it: a page, in place of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from parllel.distributed.operators.experiments.episode_gate import EpisodeGate
from parllel.distributed.operators.experiments.operator_session import Onlooker, OperatorSession
from parllel.distributed.operators.games.seated_players import Notice
from parllel.distributed.operators.protocol.choosing import Choose
from parllel.distributed.operators.viewers import Viewer


class Watching(Protocol):
    """What follows an experiment. What is played, and written down, is the same without it."""

    @property
    def viewers(self) -> Sequence[Viewer]:
        """Who wants pictures."""
        ...

    def gate(self, inner: EpisodeGate) -> EpisodeGate:
        """Return the gate that operators pass in place of the experiment's own, which it has to pass on."""
        ...

    def onlooker(self, name: str) -> Onlooker:
        """Return what follows the episodes of an operator or game."""
        ...

    def choose(self, name: str) -> Choose:
        """Return what asks the people of an operator or game."""
        ...

    def notice(self, name: str) -> Notice:
        """Return what is called when a player of a game has something else to do."""
        ...

    def starts(self, folder: Path, sessions: Sequence[OperatorSession]) -> None:
        """Note what is about to be played, and where it is written."""
        ...

    def look(self) -> None:
        """Look at the counts, ten times a second; StoppedError ends the experiment."""
        ...
