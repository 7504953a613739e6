"""Episode of a game: its position, updated by actions, failures and time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.position import FAILED, Position
from parllel.distributed.remote.games.specification import Specification
from parllel.distributed.remote.plain_values import plain
from parllel.errors import WrongStateError, add_note

# States of all agents after one step, in the format of a replay.
Row: TypeAlias = "list[dict[str, Any]]"


class GameEpisode:
    """Advances the position of a game step by step.

    Args:
        game: the game, whose configuration is already set.
        specification: specification of the game.

    Attributes:
        game: as given.
        position: the current position. None before the start, and after an error in the game.
    """

    def __init__(self, game: Game, specification: Specification) -> None:
        self.game = game
        self.position: Position | None = None
        self._specification = specification

    def start(self, n_agents: int, seed: int) -> Row:
        """Start the episode and return the first state."""
        self.position = None  # stays None if the game raises
        self.game.seed = seed
        position = self._specification.position(n_agents, self.game.configuration)
        self.game.start(position)
        return self._now(position)

    def load(self, steps: Sequence[Any], seed: Callable[[], int]) -> list[Row]:
        """Continue after these steps. Returns them with defaults for missing fields.

        seed: function that returns the episode's seed, for a game that has to be replayed.

        Raises:
            ValueError: if the steps belong to another game, or differ when they are replayed.
        """
        name = self._specification.name
        rows = [self._specification.check_row(row, number) for number, row in enumerate(steps)]
        if len({len(row) for row in rows}) != 1:
            raise ValueError(
                f"{name}: steps: expected at least one step, and the same number of agents in all "
                "steps"
            )
        for state in itertools.chain.from_iterable(rows):
            # Steps written by hand have no times.
            all_s = self.game.configuration["agentTimeout"]
            state["observation"].setdefault("remainingOverageTime", all_s)
        if self.game.observed:
            for number, row in enumerate(rows):
                try:
                    self.position = self._checked(row)
                except ValueError as error:
                    raise ValueError(f"{name}: steps[{number}]: {error}") from error
        else:
            for _ in self.again(rows, seed()):
                pass
        return rows

    def _checked(self, row: Row) -> Position:
        """Return the position of an untrusted state, which must contain all of it."""
        shared = self._specification.shared
        missing = sorted(shared - set(row[0]["observation"]))
        if missing:
            raise ValueError(f"the observation of the first agent lacks {missing}")
        try:
            position = Position.of_row(row, shared)
            self.game.check(position)
        # Any exception: the game's check runs on untrusted values.
        except Exception as error:
            raise ValueError(
                f"expected a position of {self._specification.name}: {error}"
            ) from error
        return position

    def advance(self, actions: Sequence[Any], durations_s: Sequence[float] = ()) -> Row:
        """Advance by one step and return the state after it.

        actions: one action per agent, see `Environment.step`.
        durations_s: time that each agent took, in seconds.

        Raises:
            WrongStateError: after an error of the game.
            Exception: an exception raised by the game.
        """
        position = self.position
        if position is None:
            raise WrongStateError(
                f"{self._specification.name}: the game has raised an error; call reset"
            )
        self.position = None  # stays None if the game raises, as the position may be half changed
        try:
            self._charge(position, durations_s)
            self._advance(position, actions)
            return self._now(position)
        except Exception as error:
            add_note(error, f"in step {position.step} of {self._specification.name}")
            raise

    def again(self, rows: Sequence[Row], seed: int) -> Iterator[Position]:
        """Replay the actions of these states from the start, and yield the position after each one.

        Raises:
            ValueError: if a resulting state differs from the given one.
        """
        now = self.start(len(rows[0]), seed)
        for number, row in enumerate(rows):
            if number:
                actions = [_action(state) for state in row]
                now = self.advance(actions)
            position = self.position
            assert position is not None
            for seat, state, made in zip(position.seats, row, now, strict=True):
                # Measured time is the only field that a replay cannot reproduce.
                left_s = state["observation"].get("remainingOverageTime")
                seat.observation["remainingOverageTime"] = left_s
                made["observation"]["remainingOverageTime"] = left_s
                if any(made[part] != state[part] for part in ("observation", "reward", "status")):
                    raise ValueError(
                        f"{self._specification.name}: steps[{number}] differs when its actions are replayed: "
                        "the episode was played with another seed, configuration or version, or is not "
                        "determined by its seed"
                    )
            yield position

    def _now(self, position: Position) -> Row:
        row = position.row()
        self.position = position
        return row

    def _charge(self, position: Position, durations_s: Sequence[float]) -> None:
        """Deduct time beyond actTimeout from the agents' remaining overage."""
        for seat, duration_s in zip(position.seats, durations_s, strict=False):
            late_s = duration_s - self.game.configuration["actTimeout"]
            if late_s > 0:
                left_s = seat.observation["remainingOverageTime"] - late_s
                seat.observation["remainingOverageTime"] = round(left_s, 6)

    def _advance(self, position: Position, actions: Sequence[Any]) -> None:
        """Apply the actions to the position, and end the episode after its last step."""
        acting = position.active
        position.shared["step"] = position.step + 1
        for number, seat in enumerate(position.seats):
            if number not in acting and seat.status not in FAILED:
                seat.action, seat.info = self._specification.default_action(number), {}
            elif number not in acting:
                # A failed agent keeps the reason of its failure.
                seat.action = None
                seat.info = {k: v for k, v in seat.info.items() if k == "reason"}
        failed = [n for n in acting if not self._take(position, n, actions[n])]
        if failed:
            self.game.drop(position, failed)
        # Only agents that have acted: `drop` may have passed the turn to others, which act in the next step.
        acted = [n for n in position.active if n in acting]
        if acted:
            self.game.step(position)
            refused = [n for n in acted if position.seats[n].status in FAILED]
            if refused:
                self.game.drop(position, refused)
        if position.step >= self.game.configuration["episodeSteps"] - 1 or not position.active:
            position.end()

    def _take(self, position: Position, number: int, action: Any) -> bool:
        """Store an action in its seat. Returns False, with the seat marked as failed, if it is invalid."""
        seat = position.seats[number]
        seat.info = {}
        failure = action if isinstance(action, AgentFailure) else None
        if failure is None:
            try:
                value = self._specification.default_action(number) if action is None else action
                seat.action = plain(value)
                wrong = None
                if self.game.checks_schema:
                    wrong = self._specification.action_error(seat.action)
                if wrong is None:
                    self.game.check_action(number, seat.action)
                    return True
            except ValueError as error:
                wrong = f"action: {error}"
            failure = AgentFailure("INVALID", wrong)
        seat.action, seat.reward, seat.status = None, None, failure.status
        seat.info["reason"] = failure.reason
        return False


def _action(state: Mapping[str, Any]) -> Any:
    """Reconstruct an agent's action or failure from the state after it."""
    # A move that the game refused keeps its action, which the game will refuse again.
    if state["status"] in FAILED and state["action"] is None:
        return AgentFailure(state["status"], str(state["info"].get("reason", "")))
    return state["action"]
