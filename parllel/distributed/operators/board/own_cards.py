"""A board's own cards, as opposed to a watched experiment's, and the folder that records what they play.

    requests               launch, remove, restart, reset, under the board's lock
    threads of cards       CardPlayer; after an episode one of them may ask for the next round
    folder                 cards and rounds are written as they change; telemetry by the threads

A game is made before the lock is taken, since importing its library may take a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from parllel.distributed.operators.board.board_condition import BoardCondition
from parllel.distributed.operators.board.board_folder import BoardFolder, is_different_operator
from parllel.distributed.operators.board.card import Card
from parllel.distributed.operators.board.card_gate import RateLimiter
from parllel.distributed.operators.board.card_player import CardPlayer
from parllel.distributed.operators.board.card_viewer import CardViewer
from parllel.distributed.operators.board.step_all import StepAll
from parllel.distributed.operators.operator_launcher import OperatorLauncher
from parllel.distributed.operators.protocol.check_operator import check_operator
from parllel.distributed.operators.protocol.multi_agent_config import (
    AnyConfig,
    ids_of,
    operators_of,
)
from parllel.errors import ParllelError, WrongStateError
from parllel.types import Closeable

_JOIN_S = 30.0  # for a card's thread, which may be ending its worker
_KEEP_S = 1.0  # between writes of rounds that autoplay starts


class Rounds:
    """Seeds of a board's episodes. Episodes with the same number share a seed on all cards.

    Used within the board's lock.

    Args:
        seeds: seeds of the rounds so far.
    """

    def __init__(self, seeds: Iterable[int] = ()) -> None:
        self.seeds = list(seeds)

    @property
    def last(self) -> int | None:
        """The seed of the newest round."""
        return self.seeds[-1] if self.seeds else None

    def new(self, seed: int | None) -> tuple[int, int]:
        """Start a new round and return its number and seed. None uses the last seed plus one."""
        if seed is None:
            seed = self.seeds[-1] + 1 if self.seeds else 0
        self.seeds.append(seed)
        return len(self.seeds) - 1, seed

    def after(self, number: int | None) -> tuple[int, int]:
        """Return the round after `number`.

        If another card has already started that round, it is reused, so that their results are
        paired.
        """
        following = -1 if number is None else number + 1
        if not 0 <= following < len(self.seeds):
            return self.new(None)
        return following, self.seeds[following]


class OwnCards(Closeable):
    """The cards of a board.

    Args:
        condition: the board's lock.
        cards: the mapping to fill, keyed by card id.
        folder: the board's folder, which `close` closes.
        rate_limiter: limits the speed of playing cards.
        viewer: receives the cards' pictures.
        start_timeout_s, step_timeout_s: time limits for the replies of workers.

    Attributes:
        autoplay: whether a playing card starts its next episode by itself.
        rounds: the seeds so far.
        steps: queue of steps of all cards.
    """

    def __init__(
        self,
        condition: BoardCondition,
        cards: dict[str, Card],
        folder: BoardFolder,
        rate_limiter: RateLimiter,
        viewer: CardViewer,
        *,
        start_timeout_s: float,
        step_timeout_s: float | None,
    ) -> None:
        self._condition, self._cards, self._folder = condition, cards, folder
        self._rate_limiter, self._viewer = rate_limiter, viewer
        self._timeouts: dict[str, Any] = {
            "start_timeout_s": start_timeout_s,
            "step_timeout_s": step_timeout_s,
        }
        self.rounds = Rounds(folder.seeds)
        self.steps = StepAll(cards)
        self.autoplay = bool(folder.state.get("autoplay", False))
        self._players: dict[str, CardPlayer] = {}
        self._ending: list[CardPlayer] = []  # of removed cards, whose threads may still run
        self._kept_s = 0.0
        self._launcher = OperatorLauncher(
            folder.path, telemetry_dir="telemetry", log_dir="logs", terminal=False
        )

    # ------------------------------------------------------------------ cards

    def launch_kept(self) -> None:
        """Add the cards of an earlier board. Missing requirements are reported on reset."""
        for config in self._folder.configs():
            self._launch(config, lambda: None, is_checked=False)
            names = self._folder.variables_of(config.operator_id)
            if names:
                with self._condition:
                    self._cards[config.operator_id].now(
                        "new",
                        f"the values of its variables {', '.join(names)} are not stored; if it needs them, "
                        "remove and launch it again",
                    )

    def launch(self, config: AnyConfig, check: Callable[[], None]) -> None:
        """Add an operator or a game to the board.

        check: function called with the lock held. It raises if no card can be added now.

        Raises: as `Board.launch`.
        """
        _check_needs(config)
        self._launch(config, check, is_checked=True)

    def _launch(self, config: AnyConfig, check: Callable[[], None], *, is_checked: bool) -> None:
        with self._condition:
            check()
            self._check_ids(config)
        # Without the lock, which all cards need for each step: making a game may take a second.
        card = Card(config, self._condition)
        player = self._player(card, is_checked=is_checked)
        try:
            with self._condition:
                check()
                # Again: another request may have taken the ids meanwhile.
                self._check_ids(config)
                self._ending = [player for player in self._ending if player.thread.is_alive()]
                before = [p.thread for p in self._ending if p.card.card_id == card.card_id]
                self._folder.operators.setdefault(card.card_id, config.as_json())
                self._cards[card.card_id], self._players[card.card_id] = card, player
                player.start(after=before)
                self._condition.note()
                self.keep()
        except BaseException:
            player.close()
            raise

    def remove(self, card_id: str) -> None:
        """Remove a card and end its worker. Call with the lock held."""
        del self._cards[card_id]
        player = self._players.pop(card_id)
        player.end()
        self._ending.append(player)
        if not self._folder.has_played(card_id):
            # Nothing was recorded, so another operator may use the id.
            self._folder.operators.pop(card_id, None)
        self._condition.note()
        self.keep()

    def restart(self, card_id: str) -> None:
        """Replace a card's worker and play the same seed again. Call with the lock held."""
        card = self._cards[card_id]
        # As for a reset: steps of all that have not started are cancelled.
        self.steps.drop()
        # An episode requested a moment ago has not begun yet; its seed is the newest.
        seed = card.seed if card.wanted is None else card.wanted[1]
        self._players[card_id].restart(None if seed is None else self.rounds.new(seed))
        self.keep()

    def reset(self, seed: int | None, cards: Collection[Card]) -> None:
        """Start a new round on the given cards. Call with the lock held."""
        self.steps.drop()
        wanted = self.rounds.new(seed)
        for card in cards:
            self._players[card.card_id].reset(wanted)
        self._condition.note()
        self.keep()

    def begin_next(self, cards: Iterable[Card]) -> None:
        """Start the next round on cards that are not in an episode. Call with the lock held."""
        first: tuple[int, int] | None = None
        for card in cards:
            if card.status not in ("new", "ended") or card.wanted is not None:
                continue
            if card.number is None:
                first = first or self.rounds.new(None)
                wanted = first
            else:
                wanted = self.rounds.after(card.number)
            self._players[card.card_id].reset(wanted)
        self.keep()

    def keep(self) -> None:
        """Write the state of the board if it changed. Call with the lock held."""
        self._kept_s = time.monotonic()
        state = {
            "cards": [card.config.as_json() for card in self._cards.values()],
            "speed": self._rate_limiter.steps_per_s,
            "autoplay": self.autoplay,
        }
        if (state, self.rounds.seeds) != (self._folder.state, self._folder.seeds):
            self._folder.write(state, self.rounds.seeds)

    def close(self) -> None:
        """End all workers and write the results. Call once, without the lock."""
        with self._condition:
            players = [*self._ending, *self._players.values()]
            for player in self._players.values():
                player.end()
        # After the gates were stopped: a thread whose worker ended first would record a failure.
        self._launcher.close()
        for player in players:
            player.join(_JOIN_S)
        try:
            with self._condition:
                self.keep()
            self._folder.conclude()
        finally:
            self._folder.close()

    # ------------------------------------------------------------------ parts

    def _player(self, card: Card, *, is_checked: bool) -> CardPlayer:
        try:
            return CardPlayer(
                card,
                self._condition,
                self._rate_limiter,
                self.steps,
                self._viewer,
                self._launcher,
                self._folder.telemetry,
                self._folder.run_id(card.card_id),
                **self._timeouts,
                next_round=self._next_round,
                makes_game=is_checked,
            )
        except (ParllelError, ImportError, OSError) as error:
            raise ValueError(str(error)) from error

    def _next_round(self, card: Card) -> tuple[int, int] | None:
        if not self.autoplay:
            return None
        wanted = self.rounds.after(card.number)
        # Short episodes may end hundreds of times a second.
        if time.monotonic() - self._kept_s > _KEEP_S:
            self.keep()
        return wanted

    def _check_ids(self, config: AnyConfig) -> None:
        taken = {taken_id for card in self._cards.values() for taken_id in ids_of(card.config)}
        for operator_id in ids_of(config):
            if operator_id in taken:
                raise WrongStateError(
                    f"card {operator_id!r} is already on the board; use another operator_id"
                )
        before = self._folder.operators.get(config.operator_id)
        if before is not None and is_different_operator(config.as_json(), before):
            raise WrongStateError(
                f"card {config.operator_id!r}: a different operator has played under this id on this board; "
                "use another id to keep their results apart"
            )


def _check_needs(config: AnyConfig) -> None:
    try:
        for operator in operators_of([config]):
            check_operator(operator, config.env_id)
    except (ImportError, OSError) as error:
        raise ValueError(str(error)) from error
