"""Thread of a card: plays sessions of its operator or game, one after another.

the thread       a session plays the requested rounds and waits for the next one
requests         reset: another round      restart: another session      end: no more
a helper thread  ends the worker of a session that is given up, which may take seconds
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from parllel.distributed.operators.board.board_condition import BoardCondition
from parllel.distributed.operators.board.card import Card
from parllel.distributed.operators.board.card_gate import CardGate, RateLimiter
from parllel.distributed.operators.board.card_viewer import CardViewer
from parllel.distributed.operators.board.step_all import StepAll
from parllel.distributed.operators.experiments.episode_gate import (
    EpisodeAbandonedError,
    FreeGate,
    StoppedError,
)
from parllel.distributed.operators.experiments.episode_outcome import EpisodeOutcome
from parllel.distributed.operators.experiments.operator_session import Episodes, OperatorSession
from parllel.distributed.operators.experiments.session_parts import (
    episodes_of,
    labels_of,
    launch_of,
)
from parllel.distributed.operators.operator_launcher import OperatorLauncher
from parllel.system.processes.restart_budget import RestartBudget

_LOOK_S = 0.5  # between looks at an idle worker, whose death wakes nobody
Record = dict[str, Any]


class CardPlayer:
    """Plays the requested episodes and steps of one card, in its own thread.

    Args:
        card: the card, which shows the progress.
        condition: the board's lock.
        rate_limiter: limits the speed of playing cards.
        steps: queue of steps of all cards of the board.
        viewer: receives pictures.
        launcher: starts workers.
        telemetry: folder for the telemetry.
        run_id: run id of the telemetry.
        start_timeout_s, step_timeout_s: time limits for the replies of workers.
        next_round: called with the lock held after an episode ended while the card plays; returns the round
            to play next, or None.
        makes_game: whether to make the game in the constructor, which then raises its errors.
            Otherwise the thread makes it.

    Raises:
        ValueError, ImportError, FileNotFoundError: if its game cannot be made.
    """

    def __init__(
        self,
        card: Card,
        condition: BoardCondition,
        rate_limiter: RateLimiter,
        steps: StepAll,
        viewer: CardViewer,
        launcher: OperatorLauncher,
        telemetry: Path,
        run_id: str,
        *,
        start_timeout_s: float,
        step_timeout_s: float | None,
        next_round: Callable[[Card], tuple[int, int] | None],
        makes_game: bool = True,
    ) -> None:
        self.card, self._condition, self._viewer = card, condition, viewer
        self._rate_limiter, self._steps = rate_limiter, steps
        self._launcher, self._telemetry, self._run_id = launcher, telemetry, run_id
        self._timeouts: dict[str, Any] = {
            "start_timeout_s": start_timeout_s,
            "step_timeout_s": step_timeout_s,
        }
        self._next_round = next_round
        self._after: Sequence[threading.Thread] = ()
        self._has_ended = False
        self._n_restarts = 0
        # Made here: the caller of `launch` learns at once if the game does not exist.
        self._episodes: Episodes | None = self._make_episodes() if makes_game else None
        self._session: OperatorSession | None = None
        self._gate: CardGate | None = None
        self._helpers: list[threading.Thread] = []
        self.thread = threading.Thread(target=self._run, name=f"card {card.card_id}")

    def _make_episodes(self) -> Episodes:
        card = self.card
        return episodes_of(
            card.config,
            viewers=[self._viewer],
            choose=card.questions.ask,
            notice=card.notice,
            **self._timeouts,
        )

    # ------------------------------------------------------------------ requests

    def start(self, after: Sequence[threading.Thread] = ()) -> None:
        """Start the thread. It first waits for the threads in `after`, which use the same operator id."""
        self._after = after
        self.thread.start()

    def reset(self, wanted: tuple[int, int]) -> None:
        """Request another episode to replace the current one. Call with the lock held."""
        card = self.card
        card.wanted, card.permits = wanted, 0
        # Only in an episode: otherwise the mark would abandon the episode requested now.
        if card.is_within:
            card.abandoned = True
            card.questions.withdraw(EpisodeAbandonedError())
        self._condition.note()

    def restart(self, wanted: tuple[int, int] | None) -> None:
        """Request a new worker and an episode with it. Call with the lock held."""
        card = self.card
        card.wanted, card.permits, card.playing = wanted, 0, False
        # A count, not a flag: if the thread is just failing, a flag would be cleared as an earlier request.
        self._n_restarts += 1
        self._give_up()
        if card.players is not None:
            card.players.died([])
        card.now("new" if wanted is None else "starting")

    def end(self) -> None:
        """Request the end of the thread. Call with the lock held."""
        self._has_ended = True
        self._give_up()

    def _give_up(self) -> None:
        # First the gate, then the worker: a thread held at the gate must leave by StoppedError, and not take
        # a step whose failure would be recorded.
        self._condition.note()
        if self._gate is not None:
            self._gate.stop()
        if self._session is not None:
            # In a helper: ending a worker takes up to its grace period, and requests must not wait.
            self._helpers = [helper for helper in self._helpers if helper.is_alive()]
            helper = threading.Thread(target=self._session.close, name=f"end of {self._run_id}")
            helper.start()
            # Once it runs: `join` may read the list meanwhile, if the card's own thread is here.
            self._helpers.append(helper)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread after `end`. Returns whether it has ended."""
        # The thread first, as it may start one more helper.
        self.thread.join(timeout_s)
        for helper in self._helpers:
            helper.join(timeout_s)
        return not self.thread.is_alive()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        # Here rather than in `launch`: an earlier worker of this id may need seconds to end.
        for thread in self._after:
            thread.join()
        while not self._has_ended:
            n_restarts = self._n_restarts
            try:
                self._new_session().play()
            except StoppedError:
                pass  # restart or end; the loop's condition tells which
            except Exception as error:
                # A full disk, for example. Other cards go on.
                self._dies(f"{type(error).__name__}: {error}", n_restarts)
        self.close()

    def close(self) -> None:
        """Close a game that was made but never played."""
        if self._episodes is not None:
            self._episodes.close()

    def _dies(self, why: str, n_restarts: int) -> None:
        """Show that no session can be played, and wait for a restart or the end."""
        card = self.card
        with self._condition:
            if self._n_restarts == n_restarts:
                # Unless a restart was requested while the session failed: the card already shows that.
                card.is_within = card.playing = card.is_stepping = False
                card.wanted = None
                card.now("died", why)
        while True:
            with self._condition:
                if self._n_restarts != n_restarts or self._has_ended:
                    return
                self._condition.wait(_LOOK_S)

    def _new_session(self) -> OperatorSession:
        card, config = self.card, self.card.config
        episodes, self._episodes = self._episodes or self._make_episodes(), None
        gate = CardGate(
            self._condition,
            {card.card_id: card},
            self._rate_limiter,
            self._steps,
            FreeGate(),
            lost=self._lost,
        )
        session = OperatorSession(
            card.card_id,
            labels=labels_of(config),
            launch=launch_of(config, self._launcher, self._run_id),
            episodes=episodes,
            rounds=self._rounds(gate),
            gate=gate,
            folder=self._telemetry,
            run_id=self._run_id,
            # No limit in practice: a person decides about restarts.
            restarts=RestartBudget(1_000_000, within_s=math.inf, first_pause_s=0.0),
            observer=self,
            goes_on=True,
        )
        with self._condition:
            self._session, self._gate = session, gate
            card.questions.admit()
            # `end` may have been called before there was a gate to stop.
            if self._has_ended:
                self._give_up()
        return session

    def _lost(self, name: str) -> bool:
        return self._session is not None and self._session.worker_died

    def _rounds(self, gate: CardGate) -> Iterator[tuple[int, int, None]]:
        """Yield rounds as they are requested. Raises StoppedError at the end."""
        while True:
            with self._condition:
                card = self.card
                card.is_within = False
                if card.wanted is None:
                    self._condition.wait(_LOOK_S)
                # First of all: what was requested after a restart belongs to the next session.
                gate.pause(0.0)
                # All under one lock: from now on a reset finds the card in this episode.
                wanted, card.wanted, card.abandoned = card.wanted, None, False
                if wanted is not None:
                    # Here, not when the session reports it: a restart in between has the last word.
                    card.begins(*wanted)
                    # Under the same lock as `abandoned`: a later reset withdraws the questions again.
                    card.questions.admit()
                elif card.is_stepping:
                    # Its episode ended and no other was requested: do not keep the other cards waiting.
                    card.is_stepping = False
                    self._condition.note()
                elif card.status != "died" and self._lost(card.card_id):
                    card.playing = False
                    card.now("died", self._death())
            # Without the lock: the session plays the whole episode before it asks for the next round.
            if wanted is not None:
                yield (*wanted, None)

    def _death(self) -> str:
        """Return the message for a worker that ended between two episodes."""
        reason = "its worker has ended by itself"
        if self.card.players is None or self._session is None:
            return reason
        return f"{self.card.players.died(self._session.lost_operators)}: {reason}"

    # ------------------------------------------------------------------ reports of the session

    def begins(self, episode: int, seed: int) -> None:
        """Do nothing: the episode was shown when its round was taken."""

    def stepped(self, record: Record) -> None:
        """Update the card with the record of a step."""
        self.card.stepped(record)

    def ended(self, outcomes: list[EpisodeOutcome]) -> None:
        """Update the card with an episode's outcomes. If autoplay is on, request the next one."""
        with self._condition:
            card = self.card
            card.ended(outcomes)
            if card.playing and card.wanted is None:
                card.wanted = self._next_round(card) if card.status == "ended" else None
                card.playing = card.wanted is not None
