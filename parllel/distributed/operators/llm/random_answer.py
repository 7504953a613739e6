"""Answers of a model that understands the questions of this package, and chooses at random."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

_MOVES = re.compile(r"^Legal moves: (.+)$", re.MULTILINE)
_LISTED = re.compile(r"^(?:Legal actions|Actions): (.+?)\.?$", re.MULTILINE)
_NUMBERS = re.compile(r"a whole number from (-?\d+) to (-?\d+)")
_LIST = re.compile(r"of shape \[(\d+)\], from (-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?)")
_MENU = re.compile(r"one of these actions:\n((?:.+: .+\n?)+)")


def random_answer(messages: Sequence[Mapping[str, str]]) -> str:
    """Return a legal action as the workers of this package ask for it, the same for the same dialogue."""
    generator = random.Random(json.dumps([dict(message) for message in messages]))
    rules, last = messages[0]["content"], messages[-1]["content"]
    if (found := _MOVES.search(last)) is not None:
        return f"make move {generator.choice(found[1].split())}"
    if "get legal moves" in rules:
        return "get legal moves"
    action = _action(generator, rules, last)
    return "I do not know what to do." if action is None else f"Action: {action}"


def _action(generator: random.Random, rules: str, last: str) -> Any:
    if (found := _LISTED.search(last) or _LISTED.search(rules)) is not None:
        return generator.choice(found[1].split(", "))
    if (found := _NUMBERS.search(rules)) is not None:
        return generator.randint(int(found[1]), int(found[2]))
    if (found := _LIST.search(rules)) is not None:
        low, high = float(found[2]), float(found[3])
        return [round(generator.uniform(low, high), 3) for _ in range(int(found[1]))]
    if (found := _MENU.search(rules)) is not None:
        return generator.choice([line.partition(":")[0] for line in found[1].splitlines()])
    return None
