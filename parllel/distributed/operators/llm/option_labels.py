"""Labels that a text gives to numbered actions, such as "2: Move right", and short names for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice

_ROW = re.compile(r"\W*\|\s*(-?\d+)\s*\|([^|\n]+)\|")  # of a table
_ENTRY = re.compile(r"(?:[\s*+`('\"]|-\s)*(-?\d+)[\s*`)'\"]*[:=]+[\s*`'\"]*([^\W\d].*)", re.DOTALL)
# What follows is explanation: "south (down)", "do nothing, which costs 1".
_EXPLAINED = re.compile(r"[(\[;:.]")
_LONGEST, _MOST = 4, 400  # words of a short name; labels
_MAX_LED = 32  # labels that are also understood after "go to the"
# Words without meaning of their own, and words that reverse the meaning of a label.
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
    """Return the label of each action in a list such as "0: Move left".

    Returns {} unless every action has a label. A number with two different labels counts as
    unlabelled.

    actions: the numbers of all actions.
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
    if any(len(candidates) != 1 for candidates in labels.values()):
        return {}
    plain = [words_of(*candidates) for candidates in labels.values()]
    if len(set(map(tuple, plain))) < len(plain):  # "apply -1 torque" and "apply 1 torque"
        return {}
    return {number: next(iter(candidates)) for number, candidates in labels.items()}


def _entries(line: str) -> list[tuple[str, str]]:
    # "0: left, 1: right" as well. A comma within a label belongs to it.
    parts: list[str] = []
    for part in re.split(r"[,;|]", line):
        if parts and not _ENTRY.fullmatch(part):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return [(match[1], match[2]) for part in parts if (match := _ENTRY.fullmatch(part))]


def short_names(labels: Mapping[int, str]) -> dict[str, int]:
    """Return the phrases that identify one action: parts of its label that no other label contains.

    "right" is short for "Move right" unless another label contains the word. Such a phrase counts
    only as a whole answer, not within prose. Labels that contain "not" or "or" have no short names,
    because their parts mean something else.
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
    """Return the words of a text in lower case."""
    return re.findall(r"\w+", text.casefold().replace("_", " "))
