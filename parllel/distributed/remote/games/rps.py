"""Repeated rock paper scissors."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.position import Position

_NAMES = ("rock", "paper", "scissors", "spock", "lizard")


class RockPaperScissors(Game):
    """Two agents choose a sign simultaneously in every step; the final score decides.

    The higher of two signs wins if their difference is odd, otherwise the lower one. A difference in score
    below `tieRewardThreshold` is a tie.
    """

    specification: Mapping[str, Any] = {
        "name": "rps",
        "title": "Rock Paper Scissors",
        "description": "Rock paper scissors, repeated.",
        "version": "1.0.0",
        "agents": [2],
        "configuration": {
            "episodeSteps": {"minimum": 2},
            "signs": {
                "description": "Number of signs.",
                "type": "integer",
                "minimum": 3,
                "maximum": 5,
                "default": 3,
            },
            "tieRewardThreshold": {
                "description": "Minimum score to win; below it the episode is a tie.",
                "type": "integer",
                "minimum": 1,
                "maximum": 1000,
                "default": 20,
            },
        },
        "reward": {
            "description": "Steps won minus steps lost; 0 at the end for a tie.",
            "type": ["number", "null"],
            "default": 0,
        },
        "observation": {
            "lastOpponentAction": {
                "description": "The opponent's choice in the last step; absent in the first.",
                "type": "integer",
                "minimum": 0,
                "maximum": 4,
            },
            "reward": {
                "description": "The agent's score so far.",
                "type": "integer",
                "default": 0,
            },
        },
        "action": {
            "description": "The sign: 0 rock, 1 paper, 2 scissors, 3, 4.",
            "type": "integer",
            "minimum": 0,
            "maximum": 4,
            "default": 0,
        },
    }

    def step(self, position: Position) -> None:
        """Compare the signs and update the scores."""
        signs = self.configuration["signs"]
        refused = [n for n in position.active if not _is_sign(position.seats[n].action, signs)]
        for number in refused:
            action = position.seats[number].action
            position.refuse(number, f"expected a sign from 0 to {signs - 1}, got {action!r}")
        if refused:
            return
        first, second = position.seats
        score = compare(first.action, second.action)
        for seat, other, won in ((first, second, score), (second, first, -score)):
            seat.observation["reward"] += won
            seat.observation["lastOpponentAction"] = other.action
            seat.reward = seat.observation["reward"]
        if position.step >= self.configuration["episodeSteps"] - 1:
            least = self.configuration["tieRewardThreshold"]
            tie = abs(first.observation["reward"]) < least
            position.end({0: 0, 1: 0} if tie else None)

    def drop(self, position: Position, failed: list[int]) -> None:
        """End the episode; the other agent wins."""
        position.end({0: 1, 1: 1})

    def check(self, position: Position) -> None:
        """Check the scores and the last signs."""
        for seat in position.seats:
            if type(seat.observation["reward"]) is not int:
                raise ValueError(f"reward: expected an int, got {seat.observation['reward']!r}")
        _last_signs(position)

    def text(self, position: Position) -> str:
        """Return the last signs and the score."""
        signs = " vs ".join(_last_signs(position)) or "start"
        scores = [seat.observation["reward"] for seat in position.seats]
        return f"Step {position.step}: {signs}, score {scores[0]} to {scores[1]}\n"

    def picture(self, position: Position) -> str:
        """Return the last signs and the score."""
        signs = _last_signs(position) or ["", ""]
        texts = "".join(
            f'<text x="{x}" y="90" font-size="40">{sign}</text>'
            f'<text x="{x}" y="150" font-size="32" font-weight="bold">{seat.observation["reward"]:+d}</text>'
            for x, sign, seat in zip((100, 300), signs, position.seats, strict=True)
        )
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 200" font-family="sans-serif" '
            f'text-anchor="middle"><rect width="400" height="200" fill="#f4f1ea"/>{texts}</svg>'
        )


def _last_signs(position: Position) -> list[str]:
    """Return the agents' last valid signs; empty before the first step."""
    # From observations, since a failure or a refused sign replaces an action.
    seen = [seat.observation.get("lastOpponentAction") for seat in position.seats]
    return [] if None in seen else [_NAMES[sign] for sign in reversed(seen) if sign is not None]


def compare(sign: int, other: int) -> int:
    """Return 1 if `sign` wins against `other`, -1 if it loses, 0 for a tie."""
    if sign == other:
        return 0
    return 1 if ((sign - other) % 2 == 1) == (sign > other) else -1


def _is_sign(action: Any, signs: int) -> bool:
    # A JSON schema accepts 1.0 as an integer.
    return type(action) is int and 0 <= action < signs


def _constant(sign: int) -> Callable[..., int]:
    return lambda observation, configuration: sign


def copy_opponent(observation: Any, configuration: Any) -> int:
    """Choose the opponent's last sign."""
    if observation["step"] == 0:
        return random.randrange(configuration["signs"])
    return int(observation["lastOpponentAction"])


def reactionary(observation: Any, configuration: Any) -> int:
    """Choose the sign after the opponent's last one."""
    if observation["step"] == 0:
        return random.randrange(configuration["signs"])
    return int((observation["lastOpponentAction"] + 1) % configuration["signs"])


class CounterReactionary:
    """Beats a reactionary opponent, which is expected to answer the sign that has just won."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, observation: Any, configuration: Any) -> int:
        """Return the next sign."""
        signs = configuration["signs"]
        if observation["step"] == 0:
            self._last = random.randrange(signs)
        elif compare(self._last, observation["lastOpponentAction"]) > 0:
            self._last = (self._last + 2) % signs
        else:
            self._last = (observation["lastOpponentAction"] + 1) % signs
        return self._last


class Statistical:
    """Chooses the sign after the opponent's most frequent one."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def __call__(self, observation: Any, configuration: Any) -> int:
        """Return the next sign."""
        if observation["step"] == 0:
            self._counts = {}
            return 0
        seen = observation["lastOpponentAction"]
        self._counts[seen] = self._counts.get(seen, 0) + 1
        # `max` returns the first of equals, the sign that was seen first.
        most = max(self._counts, key=self._counts.__getitem__)
        return int((most + 1) % configuration["signs"])


RockPaperScissors.agents = {
    "rock": _constant(0),
    "paper": _constant(1),
    "scissors": _constant(2),
    "copy_opponent": copy_opponent,
    "reaction": reactionary,
    "reactionary": reactionary,
    "counter_reactionary": CounterReactionary,
    "statistical": Statistical,
}
