"""Random requests, against a plain model of what the cards of a board are after each of them."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from boards import Held, until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parllel.distributed.operators import Board, read_telemetry
from parllel.distributed.operators.board.board import UnknownCardError
from parllel.errors import WrongStateError

NAMES = ("a", "b", "c")
LENGTH = 5  # of all episodes of held_worker.py
chosen = st.none() | st.lists(st.sampled_from(NAMES), unique=True, min_size=1).map(tuple)
names = st.sampled_from(NAMES)
requests = st.one_of(
    st.tuples(st.just("reset"), st.none() | st.integers(0, 9), chosen),
    st.tuples(st.just("step"), chosen),
    st.tuples(st.just("step"), chosen),
    st.tuples(st.just("play"), chosen),
    st.tuples(st.sampled_from(["kill", "restart", "remove", "launch"]), names),
)


@dataclass
class Model:
    """What a card is: its status, round, seed, steps, and episodes that ended and failed."""

    status: str = "new"
    number: int | None = None
    seed: int | None = None
    step: int = 0
    ended: int = 0
    failed: int = 0

    def begin(self, number, seed):
        self.status, self.number, self.seed, self.step = "ready", number, seed, 0

    def take(self, n):
        self.step += n
        if self.step == LENGTH:
            self.status = "ended"
            self.ended += 1


@dataclass
class BoardModel:
    """What a board is; each method returns the error that the wish is refused with, or None."""

    cards: dict[str, Model] = field(default_factory=dict)
    rounds: list[int] = field(default_factory=list)

    def of(self, cards):
        return self.cards if cards is None else cards

    def is_unknown(self, cards):
        return any(name not in self.cards for name in self.of(cards))

    def reset(self, seed, cards):
        if self.is_unknown(cards):
            return UnknownCardError
        alive = [name for name in self.of(cards) if self.cards[name].status != "died"]
        if cards is not None and len(alive) < len(cards):
            return WrongStateError
        if alive:
            if seed is None:
                seed = self.rounds[-1] + 1 if self.rounds else 0
            self.rounds.append(seed)
            for name in alive:
                self.cards[name].begin(len(self.rounds) - 1, seed)
        return None

    def _go(self, cards, n):
        if self.is_unknown(cards):
            return UnknownCardError
        within = [name for name in self.of(cards) if self.cards[name].status == "ready"]
        if self.of(cards) and (not within or (cards is not None and len(within) < len(cards))):
            return WrongStateError
        for name in within:
            self.cards[name].take(min(n, LENGTH - self.cards[name].step))
        return None

    def step(self, cards):
        return self._go(cards, 1)

    def play(self, cards):
        return self._go(cards, LENGTH)

    def kill(self, name):
        card = self.cards[name]
        card.failed += card.status == "ready"
        card.status = "died"

    def restart(self, name):
        if name not in self.cards:
            return UnknownCardError
        card = self.cards[name]
        if card.seed is not None:
            self.rounds.append(card.seed)
            card.begin(len(self.rounds) - 1, card.seed)
        return None

    def remove(self, name):
        return None if self.cards.pop(name, None) else UnknownCardError

    def launch(self, name):
        if name in self.cards:
            return WrongStateError
        self.cards[name] = Model()
        return None


def shown_of(snapshot):
    return {
        card["id"]: Model(
            card["status"],
            card["episode"],
            card["seed"],
            card["step"],
            card["totals"]["n_ended"],
            card["totals"]["n_failed"],
        )
        for card in snapshot["cards"]
    }


def wish(board, held, model, name, *arguments):
    """Wish for something of a board, and of the model."""
    if name == "kill":
        (card,) = arguments
        if card in model.cards and model.cards[card].status in ("ready", "ended"):
            model.kill(card)
            held.kill(card)
        return
    calls = {
        "reset": board.reset,
        "step": board.step,
        "play": board.play,
        "restart": board.restart,
        "remove": board.remove,
        "launch": lambda card: board.launch(held.config(card)),
    }
    error = getattr(model, name)(*arguments)
    refused = contextlib.nullcontext() if error is None else pytest.raises(error, match="card")
    with refused:
        calls[name](*arguments)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(requests, min_size=4, max_size=12))
def test_cards_are_what_a_model_says_after_each_wish(tmp_path, script):
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    held, model = Held(folder), BoardModel()
    with Board(base=folder, speed=None) as board:
        for name in NAMES[:2]:
            wish(board, held, model, "launch", name)
        wish(board, held, model, "reset", None, None)
        for one in [("step", None), *script]:
            wish(board, held, model, *one)
            until(board, lambda shown: shown_of(shown) == model.cards)
            assert board.snapshot()["phase"] == "stopped"
        assert board.snapshot()["seed"] == model.rounds[-1]


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(requests, min_size=5, max_size=20))
def test_wishes_that_nobody_waits_for_leave_a_board_that_can_be_reset(tmp_path, script):
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    held = Held(folder)
    with Board([held.config(name) for name in NAMES], base=folder, speed=None) as board:
        board.reset(0)
        for name, *arguments in script:
            if name == "launch":
                arguments = [held.config(*arguments)]
            if name == "kill":
                held.kill(*arguments)
                continue
            with contextlib.suppress(WrongStateError, UnknownCardError):
                getattr(board, name)(*arguments)
        board.stop()
        # Of all: that one was killed a moment ago may not yet be noticed.
        for card in board.snapshot()["cards"]:
            board.restart(card["id"])
        until(board, lambda shown: all(c["status"] in ("new", "ready") for c in shown["cards"]))
        board.reset(3)
        shown = until(
            board,
            lambda shown: all((c["status"], c["seed"]) == ("ready", 3) for c in shown["cards"]),
        )
        assert {card["step"] for card in shown["cards"]} <= {0}
    for path in (board.folder / "telemetry").glob("*_steps.jsonl"):
        steps = {}
        for record in read_telemetry(path):
            steps.setdefault(record["episode"], []).append(record["step"])
        assert all(found == list(range(1, len(found) + 1)) for found in steps.values())
