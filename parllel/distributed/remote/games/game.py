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
    """Game of one `Environment`. Subclass it and pass the class to `register`.

    Attributes:
        specification: a dict, see `docs/remote.md`. Fields that all games share are added: `episodeSteps`,
            `actTimeout`, `runTimeout`, `agentTimeout`, `maxLogLength` and `seed` of the configuration, and
            `step` and `remainingOverageTime` of the observation.
        checks_schema: whether the schema validates actions. If False, only `check_action` does.
        agents: built-in agents keyed by name. Each is a function of (observation, configuration),
            or a class, which is instantiated for each agent and may keep state.
        observed: whether observations contain the whole state of the game, so that it can continue from any
            of them. Otherwise a replay is loaded by replaying its actions with its seed.
        configuration: JSON values with all defaults, set before `start`. Read-only.
        seed: the episode's seed, set before `start`, from which all randomness of the game is
            derived. It is stored in the replay's `info` if the game is not `observed`.
        pictures: whether `picture` will be called, set before `start`. For an `observed` game,
            `picture` may be called at any time.
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

        The schema has already validated the actions. Report a move against the rules with
        `position.refuse`; `drop` is then called.
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

        The schemas have already validated its values. Any other exception also marks the position
        as invalid.
        """

    def check_action(self, number: int, action: Any) -> None:
        """Raise ValueError for an action that is invalid for this seat, beyond the checks of the schema."""

    def text(self, position: Position) -> str:
        """Return the position as text for a terminal."""
        return repr(position.shared)

    def picture(self, position: Position) -> Picture | None:
        """Return the position as an SVG document or uint8 [H, W, 3], or None without a picture."""
        return None

    def close(self) -> None:
        """Release the game's resources. Idempotent."""
