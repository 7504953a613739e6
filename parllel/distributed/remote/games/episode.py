"""One episode: the position of a game, and what actions, failures and time make of it."""

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

# The states of all agents after one step, as a replay holds them.
Row: TypeAlias = "list[dict[str, Any]]"


class GameEpisode:
    """Let a game change its position, step by step.

    Args:
        game: whose configuration is set.
        specification: of this game.

    Attributes:
        game: the argument.
        position: where the game stands; None before the start, and after an error in the game.
    """

    def __init__(self, game: Game, specification: Specification) -> None:
        self.game = game
        self.position: Position | None = None
        self._specification = specification

    def start(self, n_agents: int, seed: int) -> Row:
        """Begin, and return the first state."""
        self.position = None  # until the game has made the first one
        self.game.seed = seed
        position = self._specification.position(n_agents, self.game.configuration)
        self.game.start(position)
        return self._now(position)

    def load(self, steps: Sequence[Any], seed: Callable[[], int]) -> list[Row]:
        """Go on after these steps, and return them with defaults for what they lack.

        seed: returns that of the episode, for a game that has to be played again.

        Raises:
            ValueError: if they are not of this game, or come out otherwise when they are played again.
        """
        name = self._specification.name
        rows = [self._specification.check_row(row, number) for number, row in enumerate(steps)]
        if len({len(row) for row in rows}) != 1:
            raise ValueError(f"{name}: steps: expected some, with as many agents in each")
        for state in itertools.chain.from_iterable(rows):
            # One that was written by hand has no times.
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
        """Return the position that a state from elsewhere is the whole of."""
        shared = self._specification.shared
        missing = sorted(shared - set(row[0]["observation"]))
        if missing:
            raise ValueError(f"the observation of the first agent lacks {missing}")
        try:
            position = Position.of_row(row, shared)
            self.game.check(position)
        # Of any kind, as the state of a stranger may be anything.
        except Exception as error:
            raise ValueError(f"no position of {self._specification.name}: {error}") from error
        return position

    def advance(self, actions: Sequence[Any], durations_s: Sequence[float] = ()) -> Row:
        """Make one step, and return the state after it.

        actions: of each agent; see `Environment.step`.
        durations_s: how long each took for it.

        Raises:
            WrongStateError: after an error of the game.
            Exception: what the game raises.
        """
        position = self.position
        if position is None:
            raise WrongStateError(
                f"{self._specification.name}: the game raised an error; call reset"
            )
        self.position = None  # until the game has made the next one
        try:
            self._charge(position, durations_s)
            self._advance(position, actions)
            return self._now(position)
        except Exception as error:
            add_note(error, f"in step {position.step} of {self._specification.name}")
            raise

    def again(self, rows: Sequence[Row], seed: int) -> Iterator[Position]:
        """Play the actions of these states again from the start; yield the position after each.

        Raises:
            ValueError: if something else comes out.
        """
        now = self.start(len(rows[0]), seed)
        for number, row in enumerate(rows):
            if number:
                actions = [_action(state) for state in row]
                now = self.advance(actions)
            position = self.position
            assert position is not None
            for seat, state, made in zip(position.seats, row, now, strict=True):
                # The only thing that is not the game's.
                left_s = state["observation"].get("remainingOverageTime")
                seat.observation["remainingOverageTime"] = left_s
                made["observation"]["remainingOverageTime"] = left_s
                if any(made[part] != state[part] for part in ("observation", "reward", "status")):
                    raise ValueError(
                        f"{self._specification.name}: steps[{number}] came out otherwise when its actions "
                        "were played again: it was played with another seed, configuration or "
                        "version, or is not determined by its seed"
                    )
            yield position

    def _now(self, position: Position) -> Row:
        row = position.row()
        self.position = position
        return row

    def _charge(self, position: Position, durations_s: Sequence[float]) -> None:
        """Take time beyond actTimeout from what the agents have left."""
        for seat, duration_s in zip(position.seats, durations_s, strict=False):
            late_s = duration_s - self.game.configuration["actTimeout"]
            if late_s > 0:
                left_s = seat.observation["remainingOverageTime"] - late_s
                seat.observation["remainingOverageTime"] = round(left_s, 6)

    def _advance(self, position: Position, actions: Sequence[Any]) -> None:
        """Let the game change the position, and end it if that was its last step."""
        acting = position.active
        position.shared["step"] = position.step + 1
        for number, seat in enumerate(position.seats):
            if number not in acting and seat.status not in FAILED:
                seat.action, seat.info = self._specification.default_action(number), {}
            elif number not in acting:
                # The reason stays, as it says why the agent is not there.
                seat.action = None
                seat.info = {k: v for k, v in seat.info.items() if k == "reason"}
        failed = [n for n in acting if not self._take(position, n, actions[n])]
        if failed:
            self.game.drop(position, failed)
        # Of those who have acted: after a drop others may be active, which act next.
        acted = [n for n in position.active if n in acting]
        if acted:
            self.game.step(position)
            refused = [n for n in acted if position.seats[n].status in FAILED]
            if refused:
                self.game.drop(position, refused)
        if position.step >= self.game.configuration["episodeSteps"] - 1 or not position.active:
            position.end()

    def _take(self, position: Position, number: int, action: Any) -> bool:
        """Give an action to its seat; return False, with the seat marked, if it is none."""
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
    """Return what an agent did in a step, from the state after it."""
    # A refused move keeps its action, which the game refuses again.
    if state["status"] in FAILED and state["action"] is None:
        return AgentFailure(state["status"], str(state["info"].get("reason", "")))
    return state["action"]
