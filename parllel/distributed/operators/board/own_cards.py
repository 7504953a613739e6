"""A board's own cards: put on it, taken off, reset; and the folder that keeps what they play.

    requests               launch, remove, restart, reset, under the board's lock
    threads of cards       CardPlayer; after an episode one of them may ask for the next round
    folder                 cards and rounds are written as they change; telemetry by the threads

A game is made before the lock is taken, as its library may take a second to import.
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

_JOIN_S = 30.0
_KEEP_S = 1.0  # between two writes of rounds that follow by themselves


class Rounds:
    """The seeds of a board's episodes: those of one number share a seed, whichever card plays them.

    Used within the board's lock.

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


class OwnCards(Closeable):
    """The cards of a board.

    Args:
        condition: the board's lock.
        cards: gets them, by id.
        folder: of the board; closed at the end.
        rate_limiter: of cards that play.
        viewer: gets their pictures.
        start_timeout_s, step_timeout_s: for the replies of workers.

    Attributes:
        autoplay: whether a card that plays begins its next episode by itself.
        rounds: the seeds so far.
        steps: of all cards.
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
        self._ending: list[CardPlayer] = []  # of cards that were removed
        self._kept_s = 0.0
        self._launcher = OperatorLauncher(
            folder.path, telemetry_dir="telemetry", log_dir="logs", terminal=False
        )

    # ------------------------------------------------------------------ cards

    def launch_kept(self) -> None:
        """Put the cards of an earlier board on this one; what they lack is said when they are reset."""
        for config in self._folder.configs():
            self._launch(config, lambda: None, is_checked=False)
            names = self._folder.variables_of(config.operator_id)
            if names:
                with self._condition:
                    self._cards[config.operator_id].now(
                        "new",
                        f"the values of its variables {', '.join(names)} are not kept: if it needs them, "
                        "remove it, and launch it anew",
                    )

    def launch(self, config: AnyConfig, check: Callable[[], None]) -> None:
        """Put an operator or a game on the board.

        check: called within the lock; raises if nothing can be put there now.

        Raises: as `Board.launch`.
        """
        _check_needs(config)
        self._launch(config, check, is_checked=True)

    def _launch(self, config: AnyConfig, check: Callable[[], None], *, is_checked: bool) -> None:
        with self._condition:
            check()
            self._check_ids(config)
        # Without the lock, which all cards need for each step.
        card = Card(config, self._condition)
        player = self._player(card, is_checked=is_checked)
        try:
            with self._condition:
                check()
                # Another may have taken them meanwhile.
                self._check_ids(config)
                self._ending = [one for one in self._ending if one.thread.is_alive()]
                before = [one.thread for one in self._ending if one.card.card_id == card.card_id]
                self._folder.operators.setdefault(card.card_id, config.as_json())
                self._cards[card.card_id], self._players[card.card_id] = card, player
                player.start(after=before)
                self._condition.note()
                self.keep()
        except BaseException:
            player.close()
            raise

    def remove(self, card_id: str) -> None:
        """Take a card off the board, and end its worker; within the lock."""
        del self._cards[card_id]
        player = self._players.pop(card_id)
        player.end()
        self._ending.append(player)
        if not self._folder.has_played(card_id):
            # Another operator may have its id.
            self._folder.operators.pop(card_id, None)
        self._condition.note()
        self.keep()

    def restart(self, card_id: str) -> None:
        """End a card's worker, and play the seed that it had in another; within the lock."""
        card = self._cards[card_id]
        # An episode may have been wished for a moment ago.
        self.steps.drop()
        seed = card.seed if card.wanted is None else card.wanted[1]
        self._players[card_id].restart(None if seed is None else self.rounds.new(seed))
        self.keep()

    def reset(self, seed: int | None, cards: Collection[Card]) -> None:
        """Let cards begin an episode of the same round; within the lock."""
        self.steps.drop()
        wanted = self.rounds.new(seed)
        for card in cards:
            self._players[card.card_id].reset(wanted)
        self._condition.note()
        self.keep()

    def begin_next(self, cards: Iterable[Card]) -> None:
        """Let those that play nothing begin their next round; within the lock."""
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
        """Write what the board is; within the lock."""
        self._kept_s = time.monotonic()
        state = {
            "cards": [card.config.as_json() for card in self._cards.values()],
            "speed": self._rate_limiter.steps_per_s,
            "autoplay": self.autoplay,
        }
        if (state, self.rounds.seeds) != (self._folder.state, self._folder.seeds):
            self._folder.write(state, self.rounds.seeds)

    def close(self) -> None:
        """End all workers, and write the results; once, and without the lock."""
        with self._condition:
            players = [*self._ending, *self._players.values()]
            for player in self._players.values():
                player.end()
        # After their gates were stopped: a thread whose worker ends before would record a failure.
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
        # Of short episodes there may be hundreds a second.
        if time.monotonic() - self._kept_s > _KEEP_S:
            self.keep()
        return wanted

    def _check_ids(self, config: AnyConfig) -> None:
        taken = {one for card in self._cards.values() for one in ids_of(card.config)}
        for operator_id in ids_of(config):
            if operator_id in taken:
                raise WrongStateError(f"there is a card {operator_id!r} already; take another id")
        before = self._folder.operators.get(config.operator_id)
        if before is not None and is_different_operator(config.as_json(), before):
            raise WrongStateError(
                f"card {config.operator_id!r}: another operator of this id has played on this board; take "
                "another id, so that their results stay apart"
            )


def _check_needs(config: AnyConfig) -> None:
    try:
        for one in operators_of([config]):
            check_operator(one, config.env_id)
    except (ImportError, OSError) as error:
        raise ValueError(str(error)) from error
