"""What an answer in prose says: the one thing that it names, and the JSON that is written in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_LONGEST = 20_000  # characters, from the end, that are looked at
_THOUGHTS = re.compile(r"<(think|thinking)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_END_OF_THOUGHTS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
# Markdown, JSON and quotes around a name.
_MARKUP = re.compile(r"[*`\"'\u2018\u2019\u201c\u201d{}\[\]<>#_~]+")
_LABEL = re.compile(
    r"\W*(?:my |the |next |final |best |chosen )*(?:action|answer|choice|move)(?: is)? *[:=] *(.*)"
)
_NEGATION = re.compile(
    r"\b(?:not|cannot|never|avoid|without|instead of|rather than|\w+n t|unable to)\b"
)
_WORD = re.compile(r"\w+")
_CLAUSE = re.compile(r"[.,;:!?()]|\b(?:but|so|then)\b")
_LABEL_OF_JSON = re.compile(r"(?:action|answer)\W*[:=]", re.IGNORECASE)
_BEGINNING_OF_JSON = re.compile(r"[\[{]|-?\d")
_MAX_WITH_JSON = 10_000
_decode = json.JSONDecoder().raw_decode


def answered(
    text: str,
    named: Mapping[str, T],
    brief: Mapping[str, T] | None = None,
    words: Mapping[str, T] | None = None,
) -> T | None:
    """Return what an answer names, or None unless that is exactly one thing.

    Thoughts in <think> are left out. The last line such as "Action: NAME" decides; if there is none, the last
    line; if that names nothing, the whole text. A name after a negation in the same clause does not count.

    Args:
        text: the answer.
        named: by names, which are looked for as whole words anywhere; neither case nor "_" and "-" matter.
        brief: by names such as numbers, which sentences are full of: they count as a whole answer alone.
        words: by words that count beside a name, so that "Move left or right" names two things.
    """
    names = {_plain(name): value for name, value in named.items()}
    # The longest first, as one name may be a part of another.
    either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = re.compile(rf"(?<!\w)(?:{either})(?!\w)") if names else None
    whole = {**{_plain(name): value for name, value in (brief or {}).items()}, **names}
    lines = [line for line in map(_plain, strip_reasoning(text).splitlines()) if line]
    if not lines:
        return None
    labelled = [match[1] for line in lines if (match := _LABEL.fullmatch(line))]
    if labelled:
        return _only(_named(labelled[-1], pattern, whole, words or {}, is_labelled=True))
    found = _named(lines[-1], pattern, whole, words or {})
    if not found:
        for line in lines:
            found |= _named(line, pattern, whole, words or {})
    return _only(found)


def finished_part(text: str) -> str:
    """Return the part of a cut answer that can be relied on: its last whole line such as "Action: NAME".

    What a model was still weighing when it was cut names things as well, and is left out; so is the line that
    was cut, which may have been longer. "" if there is no such line.
    """
    *lines, _ = strip_reasoning(text).split("\n")
    labelled = [line for line in lines if _LABEL.fullmatch(_plain(line))]
    return labelled[-1] if labelled else ""


def strip_reasoning(text: str) -> str:
    """Return what an answer says after its thoughts; of a very long one, the end."""
    said = _THOUGHTS.sub("\n", text)
    # Some servers keep the mark that opens them.
    return _END_OF_THOUGHTS.split(said)[-1][-_LONGEST:]


def written_values(text: str) -> list[Any]:
    """Return the JSON values that an answer holds: those after the last "Action:", else all, in their order.

    Thoughts in <think> are left out, and of a value nothing inside it is another one.
    """
    text = strip_reasoning(text)[-_MAX_WITH_JSON:]
    labels = list(_LABEL_OF_JSON.finditer(text))
    return list(_values(text[labels[-1].end() :] if labels else text))


def _plain(text: str) -> str:
    """Return text in one form: lower case, without markup, with single spaces."""
    text = re.sub(r"(?<=\w)['\u2019](?=\w)", " ", text.casefold())  # "don't" keeps two words
    return " ".join(_MARKUP.sub(" ", text).replace("-", " ").split())


def _named(
    line: str,
    pattern: re.Pattern[str] | None,
    whole: Mapping[str, T],
    words: Mapping[str, T],
    *,
    is_labelled: bool = False,
) -> dict[str, T]:
    """Return what a line names, by name.

    pattern: finds names in sentences.
    whole: all names.
    words: that count beside a name: in its clause, as a clause, and anywhere in a labelled line.
    """
    alone = line.strip(" .,;:!?()")
    if alone in whole:
        return {alone: whole[alone]}
    if pattern is None:
        return {}
    clauses = _CLAUSE.split(line)
    spoken = [_spoken(clause, pattern) for clause in clauses]
    found = {name: whole[name] for names in spoken for name in names}
    for clause, names in zip(clauses, spoken, strict=True):
        if names or (found and (is_labelled or clause.strip() in words)):
            rest = pattern.sub("|", clause)
            found.update((word, words[word]) for word in _spoken(rest, _WORD) if word in words)
    return found


def _spoken(clause: str, pattern: re.Pattern[str]) -> list[str]:
    """Return what a clause has of a pattern, before it denies something."""
    negation = _NEGATION.search(clause)
    end = len(clause) if negation is None else negation.start()
    return [match[0] for match in pattern.finditer(clause) if match.start() < end]


def _only(found: Mapping[str, T]) -> T | None:
    """Return the one value of all names; None if there is none, or more than one."""
    values = list(found.values())
    return values[0] if values and all(value == values[0] for value in values) else None


def _values(text: str) -> Iterator[Any]:
    at = 0
    while (found := _BEGINNING_OF_JSON.search(text, at)) is not None:
        at = found.end()
        try:
            value, at = _decode(text, found.start())
        except RecursionError:
            return  # each bracket of thousands would be tried anew
        except ValueError:
            continue
        yield value
