"""What a game is: its specification, built-in agents, and how its position changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.distributed.remote.games.position import Position
from parllel.types import Closeable

# An SVG document, or uint8 [H, W, 3].
Picture: TypeAlias = "str | NDArray[np.uint8]"


class Game(Closeable):
    """One game of one `Environment`; derive from it, and hand the class to `register`.

    Attributes:
        specification: a dict, see `docs/remote.md`. What all games have is added to it: `episodeSteps`,
            `actTimeout`, `runTimeout`, `agentTimeout`, `maxLogLength` and `seed` of the configuration, and
            `step` and `remainingOverageTime` of the observation.
        checks_schema: whether actions are checked by the schema; else `check_action` alone does it.
        agents: built-in agents by name, functions of (observation, configuration). Of a class an instance is
            made for each agent, which can remember.
        observed: whether observations are the whole state of the game, so that it can go on from any of
            them. Otherwise a replay is loaded by playing its actions again, from its seed.
        configuration: set before `start`; JSON values, with all defaults; not to be changed.
        seed: set before `start`; of this episode, from which a game draws all its randomness; kept in the
            replay's `info` if the game is not `observed`.
        pictures: set before `start`; whether `picture` will be asked for; of a game that is `observed` it may
            be at any time.
    """

    specification: Mapping[str, Any]
    checks_schema: bool = True
    agents: Mapping[str, Callable[..., Any]] = MappingProxyType({})
    observed: bool = True
    configuration: dict[str, Any]
    seed: int
    pictures: bool = False

    def start(self, position: Position) -> None:
        """Fill in the first position. Its seats have the defaults of the specification."""

    def step(self, position: Position) -> None:
        """Change the position by the actions of the seats that are `active`; say who acts next.

        Their actions are values of the schema. A move that is against the rules is given to
        `position.refuse`; `drop` is called after that.
        """
        raise NotImplementedError

    def drop(self, position: Position, failed: list[int]) -> None:
        """Go on without agents that failed in this step, before `step` is called if others have acted.

        The others play on: the turn passes to the next of them. The last that is left is DONE.
        """
        if len(position.left) < 2:
            position.end()
        elif not position.active:
            position.pass_turn(failed[-1])

    def check(self, position: Position) -> None:
        """Raise ValueError for a position from elsewhere that is none of this game.

        Its values are of the schemas. An error of any kind says that it is not.
        """

    def check_action(self, number: int, action: Any) -> None:
        """Raise ValueError for an action that cannot be one of this seat, beyond what the schema says."""

    def text(self, position: Position) -> str:
        """Return the position as text for a terminal."""
        return repr(position.shared)

    def picture(self, position: Position) -> Picture | None:
        """Return the position as a picture: an SVG document, or uint8 [H, W, 3]. None if there is none."""
        return None

    def close(self) -> None:
        """Release what the game holds; may be called twice."""
