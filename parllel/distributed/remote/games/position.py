"""Position of a game: the fields that all agents see, and one seat per agent."""

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
    """State of one agent.

    Attributes:
        observation: the agent's own fields. Shared fields are in `Position.shared`.
        action: the last action. None if the agent failed to act.
        reward: the agent's reward. None after a failure.
        status: "ACTIVE" if the agent acts next, "INACTIVE" if others do, "DONE", or the kind of failure:
            "ERROR", "INVALID" or "TIMEOUT".
        info: info of this step, as JSON values. After a failure it contains the `reason`.
    """

    observation: dict[str, Any] = field(default_factory=dict)
    action: Any = None
    reward: float | None = 0
    status: str = ACTIVE
    info: dict[str, Any] = field(default_factory=dict)


@dataclass
class Position:
    """State of a game, set up by `Game.start` and changed in place by `Game.step`.

    Attributes:
        seats: states of the agents, in order.
        shared: fields of the observation that all agents see, including `step`.
    """

    seats: list[PlayerState]
    shared: dict[str, Any] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Number of steps since the start of the episode."""
        return int(self.shared.get("step", 0))

    @property
    def active(self) -> list[int]:
        """Seats that act next. During `Game.step`, the seats that have just acted."""
        return [number for number, seat in enumerate(self.seats) if seat.status == ACTIVE]

    @property
    def left(self) -> list[int]:
        """Seats still in the game, whether active or waiting for their turn."""
        return [n for n, seat in enumerate(self.seats) if seat.status in (ACTIVE, INACTIVE)]

    def turn(self, number: int) -> None:
        """Make one seat active, and all other seats still in the game inactive."""
        for other in self.left:
            self.seats[other].status = ACTIVE if other == number else INACTIVE

    def pass_turn(self, number: int) -> None:
        """Pass the turn to the next seat after `number` that is still in the game."""
        left = self.left
        if left:
            self.turn(min(left, key=lambda other: (other <= number, other)))

    def refuse(self, number: int, reason: str) -> None:
        """Mark a seat as INVALID for a move that its schema allows but the rules forbid."""
        seat = self.seats[number]
        seat.status, seat.reward = "INVALID", None
        seat.info["reason"] = reason

    def end(self, rewards: Mapping[int, float] | None = None) -> None:
        """End the game for all seats still in it, with these rewards or their current ones."""
        for number in self.left:
            seat = self.seats[number]
            seat.status = DONE
            if rewards is not None and number in rewards:
                seat.reward = rewards[number]

    def row(self) -> list[dict[str, Any]]:
        """Return a copy in the format of a replay step.

        The first seat's observation includes the shared fields.
        """
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
        """Build the position described by a step of a replay.

        shared: names of the shared fields.
        """
        first = row[0]["observation"]
        seats = [
            PlayerState(
                # Filtered for every seat, as an untrusted state may contain shared fields in all of them.
                {k: plain(v) for k, v in state["observation"].items() if k not in shared},
                plain(state["action"]),
                state["reward"],
                state["status"],
                plain(state["info"]),
            )
            for state in row
        ]
        return cls(seats, {k: plain(v) for k, v in first.items() if k in shared})
