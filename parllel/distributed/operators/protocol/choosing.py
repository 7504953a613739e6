"""Questions put to a person away from a terminal: the actions offered, and the keys that choose them."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_MAX_OFFERED = 256  # of more actions, one is easier to type than to find
# Terminal names of keys -> `KeyboardEvent.key` in a browser, where they differ.
_PAGE_KEYS = {
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "space": " ",
    "enter": "Enter",
    "escape": "Escape",
}
# Assigned to actions in this order. q and x are left out, as many programs use them to quit.
KEYS = string.digits + "abcdefghijklmnoprstuvwyz"
_ARROWS = {"left": "left", "right": "right", "up": "up", "forward": "up", "down": "down"}


def action_keys(n: int, start: int = 0, names: Sequence[str] | None = None) -> dict[str, int]:
    """Map each key to an action, for terminals and pages.

    Keys are 0-9, then letters, for as many actions as there are keys. Actions named left, right,
    up, forward or down by the environment also get the arrow keys.

    n, start: attributes of the Discrete space.
    names: names of the actions, in order.
    """
    keys = {key: start + i for i, key in enumerate(KEYS[:n])}
    for i, name in enumerate((names or ())[:n]):
        arrow = _ARROWS.get(name.lower())
        if arrow is not None:
            keys.setdefault(arrow, start + i)
    return keys


class OfferedAction(NamedTuple):
    """An action offered as a button.

    Attributes:
        action: the action as JSON values.
        name: label of the button.
        keys: keyboard shortcuts, in terms of `KeyboardEvent.key`.
    """

    action: Any
    name: str
    keys: list[str]


class Question(NamedTuple):
    """A question to a person.

    Attributes:
        player_id: the player who chooses; None in a single-agent environment.
        text: textual view of the state. None if a picture shows it.
        actions: all actions that may be chosen. None to ask for any JSON value of `space`.
        space: the action space, as text.
        check: function that raises ValueError for JSON values that are not an action, or not a
            legal one.
        message: reason why the worker refused the previous answer.
        board: squares of the picture that belong to each action, as returned by `board_squares`.
            None if unknown.
    """

    player_id: str | None
    text: str | None
    actions: list[OfferedAction] | None
    space: str | None = None
    check: Callable[[Any], None] | None = None
    message: str | None = None
    board: Mapping[str, Any] | None = None

    def name_of(self, action: Any) -> str | None:
        """Return the label of a chosen action.

        Returns None if the label is only the number of the action, or if the action was typed.
        """
        names = (offered.name for offered in self.actions or () if offered.action == action)
        name = next(names, None)
        return None if name == str(action) else name


# Asks all questions at once and returns the answers, as JSON values, in order. It blocks for as long as the
# people take; the second argument is called about once a second meanwhile and may raise to end the wait.
Choose = Callable[[Sequence[Question], Callable[[], None]], list[Any]]


def offered_actions(
    space: object,
    *,
    names: Sequence[str] | None = None,
    keys: Mapping[str, int] | None = None,
    legal: Sequence[Any] | None = None,
    legal_names: Sequence[str] | None = None,
) -> list[OfferedAction] | None:
    """Return the actions offered to a person, or None if they are not discrete, or too many to show.

    space: "n" and "start" of a Discrete space, as in a `ready` reply. Other spaces have neither.
    names: names of all actions, in order. Actions without a name are labelled by number.
    keys: actions keyed by keyboard key, replacing the defaults. Keys are named as in the settings
        of the human worker.
    legal: the actions that are legal now. None or empty means all actions.
    legal_names: names of the actions in `legal`, in the same order.
    """
    if not isinstance(space, Mapping):
        return None  # foreign workers may not describe their space
    n, start = space.get("n"), space.get("start", 0)
    if not isinstance(n, int) or not isinstance(start, int) or (not legal and n > _MAX_OFFERED):
        return None
    names, legal_names = names or (), legal_names or ()
    by_action: dict[int, list[str]] = {}
    # Named legal moves, as in chess, change with every move: no key would be easy to find.
    chosen = keys or ({} if legal_names else action_keys(n, start, names))
    for key, action in chosen.items():
        by_action.setdefault(action, []).append(_PAGE_KEYS.get(key, key))
    found = []
    for i, action in enumerate(legal or range(start, start + n)):
        name = str(action)
        if i < len(legal_names):
            name = legal_names[i]
        elif 0 <= action - start < len(names):
            name = names[action - start]
        found.append(OfferedAction(action, name, by_action.get(action, [])))
    return found
