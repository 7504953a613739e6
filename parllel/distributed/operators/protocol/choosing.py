"""What a person is asked away from a terminal, by which keys they choose, and how the answer is fetched."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_MAX_OFFERED = 256  # more actions than these are easier to type than to find
# What pages call keys, where terminals have another name for them.
_PAGE_KEYS = {
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "space": " ",
    "enter": "Enter",
    "escape": "Escape",
}
# Given to actions from the first on; q and x are left free, as many programs end by them.
KEYS = string.digits + "abcdefghijklmnoprstuvwyz"
_ARROWS = {"left": "left", "right": "right", "up": "up", "forward": "up", "down": "down"}


def action_keys(n: int, start: int = 0, names: Sequence[str] | None = None) -> dict[str, int]:
    """Return the action of each key, at a terminal and on a page.

    0-9, then letters, for as many actions as there are keys. Those that the environment calls left, right,
    up, forward or down have the arrows too.

    n, start: of the Discrete space.
    names: of its actions, in their order.
    """
    keys = {key: start + i for i, key in enumerate(KEYS[:n])}
    for i, name in enumerate((names or ())[:n]):
        arrow = _ARROWS.get(name.lower())
        if arrow is not None:
            keys.setdefault(arrow, start + i)
    return keys


class OfferedAction(NamedTuple):
    """An action that can be chosen by a button.

    Attributes:
        action: as JSON values.
        name: what it is called.
        keys: that choose it, as `KeyboardEvent.key` of a page has them.
    """

    action: Any
    name: str
    keys: list[str]


class Question(NamedTuple):
    """A question to a person.

    Attributes:
        player_id: who is to choose; None in an environment of one agent.
        text: of what there is to see; None where a picture shows it.
        actions: all that can be chosen; None for any JSON of `space`.
        space: the action space, as text.
        check: raises ValueError for JSON values that stand for no action, or none that is legal now.
        message: why the answer before was refused, by a worker that alone can say so.
        board: which squares of the picture stand for each action, as of `board_squares`; None if unknown.
    """

    player_id: str | None
    text: str | None
    actions: list[OfferedAction] | None
    space: str | None = None
    check: Callable[[Any], None] | None = None
    message: str | None = None
    board: Mapping[str, Any] | None = None

    def name_of(self, action: Any) -> str | None:
        """Return what an action that was chosen is called; None if that is its number, or it was typed."""
        names = (one.name for one in self.actions or () if one.action == action)
        name = next(names, None)
        return None if name == str(action) else name


# Asks all of these questions at once, and returns the answers, JSON values, in order. It takes as long
# as people do: the second argument is called about once a second meanwhile, and may raise to end the wait.
Choose = Callable[[Sequence[Question], Callable[[], None]], list[Any]]


def offered_actions(
    space: object,
    *,
    names: Sequence[str] | None = None,
    keys: Mapping[str, int] | None = None,
    legal: Sequence[Any] | None = None,
    legal_names: Sequence[str] | None = None,
) -> list[OfferedAction] | None:
    """Return the actions that a person is offered; None if they are not discrete, or too many to show.

    space: "n" and "start" of a Discrete space, as `ready` has them; others have neither.
    names: of all actions, in their order; numbers stand in for those that have none.
    keys: action by key, in place of the default ones, named as the settings of a person's worker name them.
    legal: those that can be chosen now; none for all.
    legal_names: of those in `legal`, in their order.
    """
    if not isinstance(space, Mapping):
        return None  # a worker of another language may say nothing of it
    n, start = space.get("n"), space.get("start", 0)
    if not isinstance(n, int) or not isinstance(start, int) or (not legal and n > _MAX_OFFERED):
        return None
    names, legal_names = names or (), legal_names or ()
    by_action: dict[int, list[str]] = {}
    # Of moves with names of their own, such as those of chess, no key would be easy to find.
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
