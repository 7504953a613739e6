"""Board of operators and games side by side, controlled by hand.

    requests, from any thread    launch, reset, step, play, stop, ...     set what is requested; never wait
                                                                          for a worker
    one thread per card          plays what is requested                  CardPlayer
    listeners                    snapshot, frame                          everything a page shows

All of this state is guarded by one lock, `BoardCondition`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parllel.distributed.operators.board.board_condition import BoardCondition
from parllel.distributed.operators.board.board_folder import BoardFolder
from parllel.distributed.operators.board.card import Card, Frame
from parllel.distributed.operators.board.card_gate import RateLimiter
from parllel.distributed.operators.board.card_viewer import CardViewer
from parllel.distributed.operators.board.own_cards import OwnCards
from parllel.distributed.operators.board.step_all import StepAll
from parllel.distributed.operators.board.watched_experiment import WatchedExperiment
from parllel.distributed.operators.protocol.multi_agent_config import AnyConfig, MultiAgentConfig
from parllel.distributed.operators.protocol.operator_config import OperatorConfig
from parllel.errors import ClosedError, WrongStateError
from parllel.types import Closeable

_JOIN_S = 30.0  # for the threads of watched experiments, which may be ending their workers


class UnknownCardError(KeyError):
    """Raised if the board has no card of this id."""

    def __str__(self) -> str:
        # KeyError puts its message in quotes.
        return str(self.args[0])


class Board(Closeable):
    """Cards of operators and games. All episodes are recorded in a run folder of kind "experiment".

    Args:
        operators: the initial cards.
        base: folder in which the run folder is created.
        folder: run folder of an earlier board. Its cards are continued, and no new folder is
            created.
        scripts: experiment files that can be watched.
        trusted: allow experiments to execute run scripts from anywhere.
        speed: initial speed of a new board, as for `set_speed`.
        frames_per_s: maximum number of pictures per second for each watched card.
        start_timeout_s, step_timeout_s: time limits for the replies to a reset and to a step, as
            for an Experiment.

    Attributes:
        folder: the run folder.
        scripts: the argument, as paths.

    Raises:
        ValueError, WrongStateError: if an operator cannot be launched, as in `launch`.
        FileNotFoundError, ValueError, WrongStateError: if `folder` is not the folder of a board, or
            is in use.
    """

    def __init__(
        self,
        operators: Iterable[AnyConfig] = (),
        *,
        base: str | os.PathLike[str] = "runs",
        folder: str | os.PathLike[str] | None = None,
        scripts: Sequence[str | os.PathLike[str]] = (),
        trusted: bool = False,
        speed: float | None = 10.0,
        frames_per_s: float = 10.0,
        start_timeout_s: float = 60.0,
        step_timeout_s: float | None = None,
    ) -> None:
        _check_rate("frames_per_s", frames_per_s)
        if speed is not None:
            _check_rate("speed", speed)
        self.scripts = tuple(os.fspath(script) for script in scripts)
        self._base, self._trusted, self._frames_per_s = base, trusted, frames_per_s
        self._watched: WatchedExperiment | None = None
        self._watched_before: list[WatchedExperiment] = []
        self._looks: dict[Hashable, frozenset[str]] = {}
        self._is_closed = False
        self._condition = BoardCondition()
        self._cards: dict[str, Card] = {}
        kept = BoardFolder(base, folder)
        self.folder: Path = kept.path
        self._rate_limiter = RateLimiter(kept.state.get("speed", speed))
        self._own = OwnCards(
            self._condition,
            self._cards,
            kept,
            self._rate_limiter,
            self._viewer_of(self._cards),
            start_timeout_s=start_timeout_s,
            step_timeout_s=step_timeout_s,
        )
        try:
            self._own.launch_kept()
            for config in operators:
                self.launch(config)
        except BaseException:
            self.close()
            # Kept folders hold earlier results; a new one is empty but for its configuration.
            if folder is None:
                kept.remove()
            raise

    # ------------------------------------------------------------------ looking

    def snapshot(self) -> dict[str, Any]:
        """Return everything a page shows, as JSON values; docs/operators_dashboard.md describes them."""
        with self._condition.look() as version:
            # One lock for all of it: the cards of one snapshot belong to the same instant.
            shown = self._shown()
            cards = [card.as_json() for card in shown.values()]
            is_playing = any(card.playing for card in shown.values())
            return {
                "version": version,
                "phase": "playing" if is_playing else "stopped",
                "steps_left": self._steps().n_left,
                "speed": self._rate_limiter.steps_per_s,
                "autoplay": self._own.autoplay,
                "seed": self._own.rounds.last,
                "folder": str(self.folder),
                "scripts": list(self.scripts),
                "experiment": None if self._watched is None else self._watched.as_json(),
                "cards": cards,
            }

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after changes, from any thread. Returns a function that cancels this.

        `changed` is not called again until a `snapshot` has been taken. It must return immediately.
        """
        return self._condition.listen(changed)

    def look(self, viewer: Hashable, cards: Collection[str]) -> None:
        """Set the cards whose pictures a viewer wants, replacing its previous ones."""
        with self._condition:
            self._looks[viewer] = frozenset(cards)

    def leave(self, viewer: Hashable) -> None:
        """Remove a viewer: no pictures are drawn for it any more."""
        with self._condition:
            self._looks.pop(viewer, None)

    def frame(self, card_id: str) -> Frame | None:
        """Return the newest picture of a card, or None before the first.

        Raises:
            UnknownCardError: if there is no such card.
        """
        with self._condition:
            return _card_of(card_id, self._shown()).frame

    # ------------------------------------------------------------------ cards

    def launch(self, config: AnyConfig) -> str:
        """Add an operator or a game to the board. Returns the id of its card.

        The first reset starts the worker.

        Raises:
            TypeError, ValueError: if it cannot be played.
            WrongStateError: if its id is taken.
        """
        if not isinstance(config, (OperatorConfig, MultiAgentConfig)):
            raise TypeError(f"expected an OperatorConfig or MultiAgentConfig, got {config!r}")
        self._own.launch(config, self._check_own)
        return config.operator_id

    def remove(self, card_id: str) -> None:
        """Remove a card from the board and end its worker. Its records stay in the folder.

        Raises:
            UnknownCardError: if there is no such card.
        """
        with self._condition:
            self._check_own()
            _card_of(card_id, self._cards)
            self._own.remove(card_id)

    def restart(self, card_id: str) -> None:
        """Replace a card's worker and start an episode with the card's last seed, if it has one.

        Raises:
            UnknownCardError: if there is no such card.
        """
        with self._condition:
            self._check_own()
            _card_of(card_id, self._cards)
            self._own.restart(card_id)

    # ------------------------------------------------------------------ playing

    def reset(self, seed: int | None = None, cards: Collection[str] | None = None) -> None:
        """Start a new episode, with the same seed for all cards.

        An episode in progress is abandoned; its steps stay in the telemetry. A card that is thinking is reset
        after its reply.

        Args:
            seed: seed of the environments. Default: the last seed plus one.
            cards: ids of the cards. Default: all cards whose workers have not died.

        Raises:
            UnknownCardError: if there is no such card.
            WrongStateError: if the worker of one of `cards` has died.
            ValueError: for an invalid seed.
        """
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ValueError(f"seed: expected an int of at least 0, got {seed!r}")
        with self._condition:
            self._check_own()
            chosen = [card for card in self._chosen(cards) if card.status != "died"]
            for card in self._chosen(cards):
                if cards is not None and card.status == "died":
                    raise WrongStateError(f"card {card.card_id!r}: its worker has died; restart it")
            if chosen:
                self._own.reset(seed, chosen)

    def step(self, cards: Collection[str] | None = None) -> None:
        """Take one step on each card.

        A step of all cards starts only when every card has finished the previous one, so no card
        gets ahead. `stop`, `play`, `reset` and `restart` cancel steps that have not started.

        Args:
            cards: ids of cards, each of which steps independently. By default, all cards take part
                that are in an episode, do not play by themselves and have no human player. In a
                lock-step experiment, cards with human players take part too.

        Raises:
            UnknownCardError: if there is no such card.
            WrongStateError: if one of `cards`, or every card, is not in an episode, or no card can take a
                step of all cards.
        """
        with self._condition:
            self._check_open()
            within = self._within(cards)
            if cards is not None:
                for card in within:
                    card.permits += 1
            elif within:
                self._steps().add()
            self._condition.note()

    def play(self, cards: Collection[str] | None = None, *, autoplay: bool | None = None) -> None:
        """Let cards take steps by themselves until their episodes end, or until `stop`.

        Args:
            cards: ids of the cards. Default: all cards that are in an episode. An empty list only
                sets `autoplay`.
            autoplay: start the next episode when one has ended, and on cards that are not in an
                episode. None leaves this setting unchanged.

        Raises:
            UnknownCardError, WrongStateError: as in `step`.
        """
        with self._condition:
            self._check_open()
            self._chosen(cards)
            if autoplay is not None:
                self._own.autoplay = bool(autoplay)
            self._condition.note()
            self._own.keep()
            if self._own.autoplay and self._watched is None:
                self._own.begin_next(self._chosen(cards))
            within = self._within(cards)
            if within:
                # A card that plays by itself takes no part in steps of all.
                self._steps().drop()
            for card in within:
                card.playing = True

    def stop(self) -> None:
        """Stop all cards from starting another step. Cards that are thinking finish their step."""
        with self._condition:
            for card in self._shown().values():
                card.playing, card.permits = False, 0
            self._steps().drop()
            self._condition.note()

    def set_speed(self, steps_per_s: float | None) -> None:
        """Set the steps per second of each playing card; None means as fast as possible.

        Raises:
            ValueError: if the number is not finite and above 0.
        """
        if steps_per_s is not None:
            _check_rate("steps_per_s", steps_per_s)
        with self._condition:
            self._rate_limiter.steps_per_s = steps_per_s
            self._condition.note()
            self._own.keep()

    def act(self, card_id: str, number: int, action: Any) -> None:
        """Answer question `number` of a card with a person's choice.

        Raises:
            UnknownCardError: if there is no such card.
            WrongStateError: if the question is not open.
            ValueError: if there is no such action.
        """
        with self._condition:
            questions = _card_of(card_id, self._shown()).questions
        # Outside the board's lock: the game checks the answer, which may take time. Questions have their own
        # lock.
        try:
            questions.answer(number, action)
        except (ValueError, WrongStateError) as error:
            raise type(error)(f"card {card_id!r}: {error}") from None

    def watch(self, script: str) -> None:
        """Play the experiment of a script in its own folder and on its own cards, initially stopped.

        The board's own cards stop and are hidden until `unwatch`. Meanwhile they cannot be added, removed or
        reset.

        Raises:
            ValueError: if the script is not one of `scripts`.
            WrongStateError: if another experiment is being played.
        """
        if script not in self.scripts:
            raise ValueError(f"script: expected one of {list(self.scripts)}, got {script!r}")
        with self._condition:
            self._check_open()
            if self._watched is not None and not self._watched.is_over:
                raise WrongStateError(
                    f"experiment {self._watched.name!r} is being played; end it first"
                )
            self.stop()
            self._watched = WatchedExperiment(
                script,
                self._condition,
                self._rate_limiter,
                self._viewer_of,
                self._base,
                trusted=self._trusted,
            )
            # Experiments left earlier may still be ending their workers: `close` waits for them.
            alive = [watched for watched in self._watched_before if watched.thread.is_alive()]
            self._watched_before = [*alive, self._watched]
            self._watched.thread.start()
            self._condition.note()

    def unwatch(self) -> None:
        """Show the board's own cards again.

        A running experiment is ended. Its results are kept.

        Raises:
            WrongStateError: if no experiment is watched.
        """
        with self._condition:
            if self._watched is None:
                raise WrongStateError("no experiment is watched")
            self._watched.stop()
            self._watched = None
            self._condition.note()

    def close(self) -> None:
        """End all workers and write the results. Idempotent."""
        with self._condition:
            if self._is_closed:
                return
            self._is_closed = True
            for watched in self._watched_before:
                watched.stop()
        # Without the lock, which the threads of cards need to end.
        self._own.close()
        for watched in self._watched_before:
            watched.thread.join(_JOIN_S)

    # ------------------------------------------------------------------ parts

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("Board: used after it was closed")

    def _check_own(self) -> None:
        """Raise unless the board's own cards are shown; no others can be changed."""
        self._check_open()
        if self._watched is not None:
            raise WrongStateError(
                f"experiment {self._watched.name!r} is being watched and has its own cards and seeds; leave "
                "it first"
            )

    def _shown(self) -> dict[str, Card]:
        return self._cards if self._watched is None else self._watched.cards

    def _steps(self) -> StepAll:
        return self._own.steps if self._watched is None else self._watched.steps

    def _viewer_of(self, cards: Mapping[str, Card]) -> CardViewer:
        return CardViewer(self._condition, cards, self._frames_per_s, self._looks)

    def _chosen(self, cards: Collection[str] | None) -> list[Card]:
        shown = self._shown()
        return [_card_of(card_id, shown) for card_id in (shown if cards is None else cards)]

    def _within(self, cards: Collection[str] | None) -> list[Card]:
        """Return the cards that are in an episode, or about to start one."""
        chosen = self._chosen(cards)
        found = [card for card in chosen if card.is_within or card.wanted is not None]
        if chosen and (not found or (cards is not None and len(found) < len(chosen))):
            card = next(card for card in chosen if card not in found)
            raise WrongStateError(
                f"card {card.card_id!r}: expected a card that is in an episode, got one that is "
                f"{card.status}; {'restart' if card.status == 'died' else 'reset'} it first"
            )
        return found


def _card_of(card_id: str, among: Mapping[str, Card]) -> Card:
    if card_id not in among:
        raise UnknownCardError(f"there is no card {card_id!r}")
    return among[card_id]


def _check_rate(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError(f"{name}: expected a number above 0, got {value!r}")
