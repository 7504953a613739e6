"""What a prompt calls the numbered actions that it offers, such as "2: Move right", and short names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice

_ROW = re.compile(r"\W*\|\s*(-?\d+)\s*\|([^|\n]+)\|")  # of a table
_ENTRY = re.compile(r"(?:[\s*+`('\"]|-\s)*(-?\d+)[\s*`)'\"]*[:=]+[\s*`'\"]*([^\W\d].*)", re.DOTALL)
# The rest explains: "south (down)", "do nothing, which costs 1".
_EXPLAINED = re.compile(r"[(\[;:.]")
_LONGEST, _MOST = 4, 400  # words of a short name; labels
_MAX_LED = 32  # labels that are understood after "go to the" as well
# Words that say nothing by themselves, and those that turn what a label says.
_EMPTY = re.compile(
    r"a|an|the|to|of|in|on|at|by|for|from|with|and|is|it|you|your|do|go|move", re.IGNORECASE
)
_TURNING = re.compile(r"not|no|never|don|t|without|avoid|or|nor|neither|either|except|but")
_LEADS = tuple(
    f"{begin}{to}".lstrip()
    for begin in ("", "go ", "move ", "i go ", "i move ", "i will go ", "i will move ", "i ll go ")
    for to in ("", "to the ")
)


def offered_labels(text: str, actions: Iterable[int]) -> dict[int, str]:
    """Return what a text calls each action in a list such as "0: Move left"; {} unless it names all of them.

    actions: the numbers of all actions. A number that has two labels has none.
    """
    wanted = list(islice(actions, _MOST + 1))
    if len(wanted) > _MOST:
        return {}
    found: dict[int, set[str]] = {}
    for line in text.splitlines():
        row = _ROW.match(line)
        for number, label in [row.groups()] if row else _entries(line):
            label = _EXPLAINED.split(label)[0].strip(" \t*`'\"")
            if label:
                found.setdefault(int(number), set()).add(label)
    labels = {number: found.get(number, set()) for number in wanted}
    if any(len(ones) != 1 for ones in labels.values()):
        return {}
    plain = [words_of(*ones) for ones in labels.values()]
    if len(set(map(tuple, plain))) < len(plain):  # "apply -1 torque" and "apply 1 torque"
        return {}
    return {number: next(iter(ones)) for number, ones in labels.items()}


def _entries(line: str) -> list[tuple[str, str]]:
    # "0: left, 1: right" too; a comma within a label goes on with it.
    parts: list[str] = []
    for part in re.split(r"[,;|]", line):
        if parts and not _ENTRY.fullmatch(part):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return [(match[1], match[2]) for part in parts if (match := _ENTRY.fullmatch(part))]


def short_names(labels: Mapping[int, str]) -> dict[str, int]:
    """Return the phrases that mean one action alone: parts of its label that no other label has.

    "right" is short for "Move right" unless another label has the word. Such a phrase is a whole answer, and
    nothing to look for in prose. A label with "not" or "or" has none, as its parts mean something else.
    """
    owners: dict[str, set[int]] = {}
    for number, label in labels.items():
        words = words_of(label)
        for i in range(len(words)):
            for j in range(i + 1, min(len(words), i + _LONGEST) + 1):
                owners.setdefault(" ".join(words[i:j]), set()).add(number)
    turned = {
        number for number, label in labels.items() if any(map(_TURNING.fullmatch, words_of(label)))
    }
    short: dict[str, int] = {}
    for phrase, numbers in owners.items():
        if len(numbers) == 1 and not (numbers & turned) and _says_something(phrase):
            short[phrase] = next(iter(numbers))
    if len(labels) <= _MAX_LED:
        for phrase, number in list(short.items()):
            for lead in _LEADS:
                if owners.get(lead + phrase, {number}) == {number}:
                    short[lead + phrase] = number
    return short


def _says_something(phrase: str) -> bool:
    words = phrase.split()
    return not any(map(_EMPTY.fullmatch, (words[0], words[-1]))) and not any(
        letter.isdigit() for letter in phrase
    )


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return re.findall(r"\w+", text.casefold().replace("_", " "))
