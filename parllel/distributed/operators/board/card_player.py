"""The thread of a card: sessions of its operator or game, one after the other.

the thread       a session plays the rounds that are wished for, and waits for the next one
requests         reset: another round      restart: another session      end: none
a helper thread  ends the worker of a session that is given up, as that may take a while
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

_LOOK_S = 0.5
Record = dict[str, Any]


class CardPlayer:
    """Play what is wished of one card, in a thread of its own.

    Args:
        card: shows it.
        condition: the board's lock.
        rate_limiter: of cards that play.
        steps: of all cards of the board.
        viewer: gets pictures.
        launcher: starts workers.
        telemetry: folder of the records.
        run_id: of the records.
        start_timeout_s, step_timeout_s: for the replies of workers.
        next_round: called within the lock after an episode that ended while the card plays; what is to be
            played next, or None.
        makes_game: whether to make its game now, so that its errors are raised; otherwise by the thread.

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
        # Now, as a game may not exist.
        self._episodes: Episodes | None = self._made() if makes_game else None
        self._session: OperatorSession | None = None
        self._gate: CardGate | None = None
        self._helpers: list[threading.Thread] = []
        self.thread = threading.Thread(target=self._run, name=f"card {card.card_id}")

    def _made(self) -> Episodes:
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
        """Start the thread; others have to end before, as they have workers of the same id."""
        self._after = after
        self.thread.start()

    def reset(self, wanted: tuple[int, int]) -> None:
        """Wish for another episode, in place of the one that is played; within the lock."""
        card = self.card
        card.wanted, card.permits = wanted, 0
        # Within an episode alone: the mark would end the episode that is wished for now.
        if card.is_within:
            card.abandoned = True
            card.questions.withdraw(EpisodeAbandonedError())
        self._condition.note()

    def restart(self, wanted: tuple[int, int] | None) -> None:
        """Wish for another worker, and an episode of it; within the lock."""
        card = self.card
        card.wanted, card.permits, card.playing = wanted, 0, False
        # A count, not a flag: the thread may be about to fail, and would take the request for an earlier one.
        self._n_restarts += 1
        self._give_up()
        if card.players is not None:
            card.players.died([])
        card.now("new" if wanted is None else "starting")

    def end(self) -> None:
        """Wish for the end of the thread; within the lock."""
        self._has_ended = True
        self._give_up()

    def _give_up(self) -> None:
        self._condition.note()
        if self._gate is not None:
            self._gate.stop()
        if self._session is not None:
            # The card's thread may be waiting for a reply, and who requests is not to wait for the end.
            self._helpers = [one for one in self._helpers if one.is_alive()]
            helper = threading.Thread(target=self._session.close, name=f"end of {self._run_id}")
            self._helpers.append(helper)
            helper.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread, after `end`; return whether it has ended."""
        for helper in (*self._helpers, self.thread):
            helper.join(timeout_s)
        return not self.thread.is_alive()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        # Not by who launches: an earlier worker of this id may need seconds to end.
        for thread in self._after:
            thread.join()
        while not self._has_ended:
            n_restarts = self._n_restarts
            try:
                self._new_session().play()
            except StoppedError:
                pass
            except Exception as error:
                # Such as a full disk; the other cards have nothing to do with it.
                self._dies(f"{type(error).__name__}: {error}", n_restarts)
        self.close()

    def close(self) -> None:
        """Close a game that was made and not played."""
        if self._episodes is not None:
            self._episodes.close()

    def _dies(self, why: str, n_restarts: int) -> None:
        """Show that no session can be played, and wait for a restart after the first `n_restarts`."""
        card = self.card
        with self._condition:
            if self._n_restarts == n_restarts:
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
        episodes, self._episodes = self._episodes or self._made(), None
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
            # A person decides.
            restarts=RestartBudget(1_000_000, within_s=math.inf, first_pause_s=0.0),
            observer=self,
            goes_on=True,
        )
        with self._condition:
            self._session, self._gate = session, gate
            card.questions.admit()
            # `end` may have come before there was a gate that it could stop.
            if self._has_ended:
                self._give_up()
        return session

    def _lost(self, name: str) -> bool:
        return self._session is not None and self._session.worker_died

    def _rounds(self, gate: CardGate) -> Iterator[tuple[int, int, None]]:
        """Yield the rounds that are wished for, as they are; raise StoppedError at the end."""
        while True:
            with self._condition:
                card = self.card
                card.is_within = False
                if card.wanted is None:
                    self._condition.wait(_LOOK_S)
                # First: what is wished for after a restart is the next session's.
                gate.pause(0.0)
                # All under one lock: a reset that comes now finds the card within this episode.
                wanted, card.wanted, card.abandoned = card.wanted, None, False
                if wanted is not None:
                    # Here, not when the session says so: a restart may come between, and has the last word.
                    card.begins(*wanted)
                    # Together with `abandoned`: a reset that comes later withdraws them again.
                    card.questions.admit()
                elif card.is_stepping:
                    # Its episode is over, and no other is wished for.
                    card.is_stepping = False
                    self._condition.note()
                elif card.status != "died" and self._lost(card.card_id):
                    card.playing = False
                    card.now("died", self._death())
            if wanted is not None:
                yield (*wanted, None)

    def _death(self) -> str:
        """Return what is to be said of a worker that has ended between two episodes."""
        said = "its worker has ended by itself"
        if self.card.players is None or self._session is None:
            return said
        return f"{self.card.players.died(self._session.lost_operators)}: {said}"

    # ------------------------------------------------------------------ what the session says

    def begins(self, episode: int, seed: int) -> None:
        """Do nothing: it was shown when it was taken."""

    def stepped(self, record: Record) -> None:
        """Show a step."""
        self.card.stepped(record)

    def ended(self, outcomes: list[EpisodeOutcome]) -> None:
        """Show the outcomes of an episode, and begin the next if autoplay is on."""
        with self._condition:
            card = self.card
            card.ended(outcomes)
            if card.playing and card.wanted is None:
                card.wanted = self._next_round(card) if card.status == "ended" else None
                card.playing = card.wanted is not None
