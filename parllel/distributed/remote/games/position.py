"""Where a game stands: what all agents see, and a seat for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from parllel.distributed.remote.plain_values import plain

ACTIVE, INACTIVE, DONE = "ACTIVE", "INACTIVE", "DONE"
FAILED = ("ERROR", "INVALID", "TIMEOUT")
STATUSES = (ACTIVE, INACTIVE, DONE, *FAILED)


@dataclass
class PlayerState:
    """What one agent sees and has.

    Attributes:
        observation: fields that are its own; those that all agents see are in `Position.shared`.
        action: the last one; None if it failed to act.
        reward: None after a failure.
        status: "ACTIVE" if it acts next, "INACTIVE" if others do, "DONE", or how it failed: "ERROR",
            "INVALID" or "TIMEOUT".
        info: of this step, JSON values; after a failure its `reason`.
    """

    observation: dict[str, Any] = field(default_factory=dict)
    action: Any = None
    reward: float | None = 0
    status: str = ACTIVE
    info: dict[str, Any] = field(default_factory=dict)


@dataclass
class Position:
    """The state of a game, which `Game.start` fills in and `Game.step` changes in place.

    Attributes:
        seats: of the agents, in their order.
        shared: fields of the observation that all agents see; `step` is one of them.
    """

    seats: list[PlayerState]
    shared: dict[str, Any] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """How many steps were made since the start of the episode."""
        return int(self.shared.get("step", 0))

    @property
    def active(self) -> list[int]:
        """The seats that act next; while `Game.step` runs, those that have just acted."""
        return [number for number, seat in enumerate(self.seats) if seat.status == ACTIVE]

    @property
    def left(self) -> list[int]:
        """The seats that still play: those that are active, and those that wait for their turn."""
        return [n for n, seat in enumerate(self.seats) if seat.status in (ACTIVE, INACTIVE)]

    def turn(self, number: int) -> None:
        """Let one seat act next, and all others that still play wait."""
        for other in self.left:
            self.seats[other].status = ACTIVE if other == number else INACTIVE

    def pass_turn(self, number: int) -> None:
        """Let the next seat after `number` that still plays act next."""
        left = self.left
        if left:
            self.turn(min(left, key=lambda other: (other <= number, other)))

    def refuse(self, number: int, reason: str) -> None:
        """Mark a seat as INVALID for a move that its schema allows and the game does not."""
        seat = self.seats[number]
        seat.status, seat.reward = "INVALID", None
        seat.info["reason"] = reason

    def end(self, rewards: Mapping[int, float] | None = None) -> None:
        """End the game for all that still play, with these rewards, or those that they have."""
        for number in self.left:
            seat = self.seats[number]
            seat.status = DONE
            if rewards is not None and number in rewards:
                seat.reward = rewards[number]

    def row(self) -> list[dict[str, Any]]:
        """Return it as a step of a replay, in memory of its own; the first seat has what is shared."""
        return [
            {
                "action": plain(seat.action),
                "reward": seat.reward,
                "info": plain(seat.info),
                "observation": plain(
                    seat.observation if number else {**seat.observation, **self.shared}
                ),
                "status": seat.status,
            }
            for number, seat in enumerate(self.seats)
        ]

    @classmethod
    def of_row(cls, row: list[dict[str, Any]], shared: Set[str]) -> Position:
        """Return the position that a step of a replay describes.

        shared: the names of what all agents see.
        """
        first = row[0]["observation"]
        seats = [
            PlayerState(
                # Also of the others, as a state from elsewhere may show them what the first sees.
                {k: plain(v) for k, v in state["observation"].items() if k not in shared},
                plain(state["action"]),
                state["reward"],
                state["status"],
                plain(state["info"]),
            )
            for state in row
        ]
        return cls(seats, {k: plain(v) for k, v in first.items() if k in shared})
