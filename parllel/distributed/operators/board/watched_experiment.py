"""A script's experiment played on the board's cards: held, stepped and released by hand.

    its thread           loads the script, plays the experiment, ends it; calls `look` ten times a second
    threads of cards     pass CardGate, then the experiment's own gate
    requests             stop, and requests to its cards; as_json

Telemetry and results are the same as without a board.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parllel.distributed.operators.board.board_condition import BoardCondition
from parllel.distributed.operators.board.card import Card
from parllel.distributed.operators.board.card_gate import CardGate, RateLimiter
from parllel.distributed.operators.board.card_viewer import CardViewer
from parllel.distributed.operators.board.step_all import StepAll
from parllel.distributed.operators.experiments.episode_gate import (
    EpisodeGate,
    LockStepGate,
    StoppedError,
)
from parllel.distributed.operators.experiments.episode_outcome import EpisodeOutcome
from parllel.distributed.operators.experiments.experiment import Experiment
from parllel.distributed.operators.experiments.experiment_file import load_experiment
from parllel.distributed.operators.experiments.operator_session import OperatorSession
from parllel.distributed.operators.games.seated_players import Notice
from parllel.distributed.operators.protocol.choosing import Choose
from parllel.distributed.operators.trusted_runs import check_runs

_MAX_CHARACTERS = 2000  # of a message


class WatchedCard(Card):
    """Card of an operator that proceeds from episode to episode by itself."""

    def begins(self, episode: int, seed: int) -> None:
        """Record that an episode starts."""
        with self._condition:
            self.questions.admit()
            super().begins(episode, seed)

    def ended(self, outcomes: list[EpisodeOutcome]) -> None:
        """Record the outcomes of the episode. Permits are kept for the next one."""
        with self._condition:
            # Remaining permits start the next episode.
            permits = self.permits
            super().ended(outcomes)
            self.is_within, self.permits = True, permits


class WatchedGate(CardGate):
    """Holds operators before their steps, and before all episodes except the first."""

    def begin_episode(self, name: str) -> None:
        """Wait for the board, then for the inner gate."""
        card = self._cards[name]
        if card.number is not None:
            self._hold(card)
            with self._condition:
                # Otherwise a step of all would never end: it would wait for this card, which waits for other
                # episodes, which need steps to end.
                card.awaits_others, card.is_stepping = True, False
                self._condition.note()
        self._inner.begin_episode(name)
        with self._condition:
            card.awaits_others = False

    def leave(self, name: str) -> None:
        """Record that the operator has played all its episodes."""
        # The inner gate first: the others may be waiting for this card.
        super().leave(name)
        self._cards[name].leaves()


class WatchedExperiment:
    """Plays a script's experiment in a thread, initially stopped.

    Args:
        script: file that defines the experiment.
        condition: the board's lock.
        rate_limiter: limits the speed of playing cards.
        viewer: function that makes the viewer of the experiment's cards.
        base: folder in which the experiment's run folder is created.
        trusted: allow run scripts outside the current folder.

    Attributes:
        name: name of the experiment.
        cards: the cards, keyed by name. Empty until the script has been loaded.
        steps: queue of steps of all its cards.
        is_over: whether the experiment has ended, for any reason.
    """

    def __init__(
        self,
        script: str,
        condition: BoardCondition,
        rate_limiter: RateLimiter,
        viewer: Callable[[Mapping[str, Card]], CardViewer],
        base: str | os.PathLike[str],
        *,
        trusted: bool,
    ) -> None:
        self.script, self._condition, self._rate_limiter = script, condition, rate_limiter
        self._base, self._trusted = base, trusted
        self.cards: dict[str, Card] = {}
        self.steps = StepAll(self.cards)
        self.viewers = (viewer(self.cards),)
        self.name = Path(script).stem
        self._folder: Path | None = None
        self._sessions: dict[str, OperatorSession] = {}
        self._n_episodes = 0
        self._state, self._message = "starting", ""
        self._is_stopped = False
        self.thread = threading.Thread(target=self._run, name=f"experiment {self.name}")
        # A script may run for ever before it has defined an experiment: it must not keep the process alive.
        self.thread.daemon = True

    @property
    def is_over(self) -> bool:
        """Whether no part of the experiment is still being played."""
        return self._state not in ("starting", "running")

    def stop(self) -> None:
        """Request the end of the experiment. Episodes played so far are kept. Does not wait."""
        # `look` ends it within a tenth of a second. Until then, no card may start another step.
        with self._condition:
            self._is_stopped = True
            for card in self.cards.values():
                card.playing, card.permits = False, 0
                card.questions.withdraw(StoppedError())
            self._condition.note()

    def as_json(self) -> dict[str, Any]:
        """Return what a page shows, as JSON values. Call with the lock held."""
        return {
            "name": self.name,
            "script": self.script,
            "folder": None if self._folder is None else str(self._folder),
            "n_episodes": self._n_episodes,
            "n_done": sum(session.n_done for session in self._sessions.values()),
            "n_failed": sum(session.n_failed for session in self._sessions.values()),
            "state": self._state,
            "message": self._message[:_MAX_CHARACTERS] or None,
        }

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        state, message = "failed", ""
        try:
            with load_experiment(self.script) as experiment:
                check_runs(experiment.operators, trusted=self._trusted)
                self._show(experiment)
                result = experiment.run(self._base, script=self.script, watching=self)
            state = "ended" if result.stopped_by is None else "stopped"
            message = "; ".join((*result.failures, *result.warnings, *result.notes))
        except StoppedError:
            state = "stopped"
        # A script is foreign code and may even call `exit`.
        except BaseException as error:
            message = str(error) if isinstance(error, (ValueError, OSError)) else repr(error)
        with self._condition:
            for card in self.cards.values():
                card.is_within = card.playing = card.is_stepping = False
            self._state, self._message = state, message
            self._condition.note()

    def _show(self, experiment: Experiment) -> None:
        with self._condition:
            self.name = experiment.name
            for config in experiment.operators:
                self.cards[config.operator_id] = WatchedCard(config, self._condition)
            self._condition.note()

    # ------------------------------------------------------------------ called by the experiment

    def gate(self, inner: EpisodeGate) -> EpisodeGate:
        """Return the board's gate in front of the experiment's own."""
        self.steps.lock_step = inner if isinstance(inner, LockStepGate) else None
        return WatchedGate(
            self._condition, self.cards, self._rate_limiter, self.steps, inner, lost=self._lost
        )

    def _lost(self, name: str) -> bool:
        session = self._sessions.get(name)
        return session is not None and session.worker_died

    def observer(self, name: str) -> Card:
        """Return the card, which records the progress."""
        return self.cards[name]

    def choose(self, name: str) -> Choose:
        """Return the function that asks the people of a card."""
        return self.cards[name].questions.ask

    def notice(self, name: str) -> Notice:
        """Return the function that is called with the status of a card's players."""
        return self.cards[name].notice

    def starts(self, folder: Path, sessions: Sequence[OperatorSession]) -> None:
        """Show the folder and the number of episodes."""
        with self._condition:
            self._folder, self._state = folder, "running"
            self._sessions = {session.name: session for session in sessions}
            self._n_episodes = sum(session.n_episodes for session in sessions)
            for card in self.cards.values():
                card.is_within = True
            self._condition.note()

    def look(self) -> None:
        """Raise StoppedError once `stop` was called."""
        # Without the lock: a flag that is set once and read ten times a second.
        if self._is_stopped:
            raise StoppedError
