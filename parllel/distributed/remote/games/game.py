"""Interface of a game: its specification, its built-in agents and its rules."""

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
    """Game of one `Environment`. Derive from it and pass the class to `register`.

    Attributes:
        specification: a dict, see `docs/remote.md`. Fields that all games share are added: `episodeSteps`,
            `actTimeout`, `runTimeout`, `agentTimeout`, `maxLogLength` and `seed` of the configuration, and
            `step` and `remainingOverageTime` of the observation.
        checks_schema: whether actions are validated by the schema; if False, only by `check_action`.
        agents: built-in agents by name, functions of (observation, configuration). A class is instantiated
            for each agent and may keep state.
        observed: whether observations contain the whole state of the game, so that it can continue from any
            of them. Otherwise a replay is loaded by replaying its actions with its seed.
        configuration: set before `start`; JSON values with all defaults. Read-only.
        seed: set before `start`; the episode's seed, source of all the game's randomness. Stored in the
            replay's `info` if the game is not `observed`.
        pictures: set before `start`; whether `picture` will be called. An `observed` game may be asked at any
            time.
    """

    specification: Mapping[str, Any]
    checks_schema: bool = True
    agents: Mapping[str, Callable[..., Any]] = MappingProxyType({})
    observed: bool = True
    configuration: dict[str, Any]
    seed: int
    pictures: bool = False

    def start(self, position: Position) -> None:
        """Set up the first position, whose seats have the specification's defaults."""

    def step(self, position: Position) -> None:
        """Apply the actions of the `active` seats to the position and set who acts next.

        Actions are valid by the schema. Report a move against the rules by `position.refuse`; `drop` is then
        called.
        """
        raise NotImplementedError

    def drop(self, position: Position, failed: list[int]) -> None:
        """Continue without agents that failed in this step. Called before `step` if others have acted.

        By default the turn passes to the next remaining agent, and the last one left is DONE.
        """
        if len(position.left) < 2:
            position.end()
        elif not position.active:
            position.pass_turn(failed[-1])

    def check(self, position: Position) -> None:
        """Raise ValueError for an untrusted position that is invalid in this game.

        Its values are valid by the schemas. Any other exception also marks the position as invalid.
        """

    def check_action(self, number: int, action: Any) -> None:
        """Raise ValueError for an action that is invalid for this seat, beyond the checks of the schema."""

    def text(self, position: Position) -> str:
        """Return the position as text for a terminal."""
        return repr(position.shared)

    def picture(self, position: Position) -> Picture | None:
        """Return the position as an SVG document or uint8 [H, W, 3]; None if the game draws none."""
        return None

    def close(self) -> None:
        """Release the game's resources. Idempotent."""
