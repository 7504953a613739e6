"""Person at a terminal as an agent: one key per action, or typed lines if there are too many."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym

from parllel.distributed.operators.protocol.choosing import KEYS, action_keys
from parllel.distributed.operators.workers.terminal import Terminal
from parllel.distributed.operators.workers.worker_agent import Decision, WorkerAgent

_SHOWN = 2000  # characters of an observation without a text form


class HumanAgent(WorkerAgent):
    """Shows the environment and asks for a key.

    Discrete actions have the keys 0-9, then letters; actions that the environment names left, right, up,
    forward or down have the arrow keys too. All other actions, and those of games, are typed as JSON.

    Args:
        open_terminal: function that opens the terminal. Called for the first action.
        keys: actions keyed by keyboard key, replacing the defaults. The arrow keys are "left",
            "right", "up" and "down".
        view: function that returns the environment as text, and the names of its actions. None for
            a player of a game.
        names: names of the actions in order, replacing those of the environment.

    Raises, from `bind`:
        ValueError: for a key whose action is not in the space, or if the number of names is wrong.
    """

    takes_actions = True

    def __init__(
        self,
        open_terminal: Callable[[], Terminal],
        keys: Mapping[str, int] | None = None,
        view: Callable[[], tuple[str | None, Sequence[str] | None]] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self._names = names
        self._open, self._keys, self._view = open_terminal, keys, view
        self._terminal: Terminal | None = None
        self._space: gym.Space[Any] | None = None

    def bind(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> None:
        """Set the spaces."""
        for key, action in (self._keys or {}).items():
            if action_space is not None and not action_space.contains(action):
                raise ValueError(
                    f"keys: {key!r}: expected an action of {action_space}, got {action!r}"
                )
        n = getattr(action_space, "n", None)
        if action_space is not None and self._names is not None and len(self._names) != n:
            raise ValueError(
                f"action_names: expected one name per action of {action_space}, got {self._names!r}"
            )
        self._space = action_space

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Return the person's choice, with the key or line as `raw`.

        Raises:
            TerminalError: if there is no terminal, or its user has left.
        """
        if self._terminal is None:
            self._terminal = self._open()
        seen, names = (info.get("text"), None) if self._view is None else self._view()
        self._terminal.show(str(observation)[:_SHOWN] if seen is None else seen)
        names = self._names or names
        legal = info.get("legal_actions")
        keys = self._keys or self._own_keys(names)
        if keys is None or (legal and not self._keys):
            return self._line(self._terminal, legal)
        return self._key(self._terminal, keys, names)

    def _own_keys(self, names: Sequence[str] | None) -> dict[str, int] | None:
        """Return the default action of each key, or None if there are more actions than keys."""
        space = self._space
        if not isinstance(space, gym.spaces.Discrete) or space.n > len(KEYS):
            return None
        return action_keys(int(space.n), int(space.start), names)

    def _key(
        self, terminal: Terminal, keys: Mapping[str, int], names: Sequence[str] | None
    ) -> Decision:
        terminal.show(_menu(keys, names, self._space))
        while True:
            key = terminal.read_key()
            if key in keys:
                return Decision(keys[key], raw=key)
            terminal.show(f"{key!r} is not an action")

    def _line(self, terminal: Terminal, legal: Sequence[Any] | None) -> Decision:
        expected = f"one of {list(legal)}" if legal else f"an action of {self._space}, as JSON"
        while True:
            terminal.show(f"{expected}:")
            line = terminal.read_line()
            try:
                action = json.loads(line)
            except ValueError:
                continue
            if legal is None or action in legal:
                return Decision(action, raw=line, parsed=action)

    def close(self) -> None:
        """Close the terminal. Idempotent."""
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None


def _menu(
    keys: Mapping[str, int], names: Sequence[str] | None, space: gym.Space[Any] | None
) -> str:
    first = int(getattr(space, "start", 0))
    by_action: dict[int, list[str]] = {}
    for key, action in keys.items():
        by_action.setdefault(action, []).append(key)
    parts = []
    for action, shortcuts in by_action.items():
        i = action - first
        name = names[i] if names is not None and 0 <= i < len(names) else f"action {action}"
        parts.append(f"[{'/'.join(shortcuts)}] {name}")
    return "  ".join(parts)
