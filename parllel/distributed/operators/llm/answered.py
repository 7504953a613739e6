"""Parsing of answers in prose: the one action that an answer names, and the JSON that it contains."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_LONGEST = 20_000  # characters that are searched, from the end
_THOUGHTS = re.compile(r"<(think|thinking)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_END_OF_THOUGHTS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
# Markdown, JSON and quotation marks around a name.
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
    """Return the value that an answer names, or None unless it names exactly one.

    Reasoning in <think> is ignored. The last line of the form "Action: NAME" is used. If there is
    no such line, the last line of the text is used, or the whole text if that line names nothing.
    Names after a negation in the same clause do not count.

    Args:
        text: the answer.
        named: values keyed by name. Names are found as whole words anywhere. Case, "_" and "-" are
            ignored.
        brief: values keyed by short names, such as numbers. They are frequent in prose, so they
            count only as a whole answer.
        words: values keyed by words that also count next to a name, so that "Move left or right"
            names two values.
    """
    names = {_plain(name): value for name, value in named.items()}
    # The longest first, since one name may contain another.
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
    """Return the reliable part of a cut answer: its last complete line such as "Action: NAME", or "".

    The rest of the answer also names actions, but these are ones that the model was still
    considering. The line that was cut is ignored, because its end is missing.
    """
    *lines, _ = strip_reasoning(text).split("\n")
    labelled = [line for line in lines if _LABEL.fullmatch(_plain(line))]
    return labelled[-1] if labelled else ""


def strip_reasoning(text: str) -> str:
    """Return an answer without its reasoning. Of a very long answer, only the end is returned."""
    answer = _THOUGHTS.sub("\n", text)
    # Some servers strip the opening tag but leave the closing one.
    return _END_OF_THOUGHTS.split(answer)[-1][-_LONGEST:]


def written_values(text: str) -> list[Any]:
    """Return the JSON values in an answer, in order.

    If the answer contains "Action:", only values after the last one are returned. Reasoning in
    <think> is ignored. Values nested inside another are not returned separately.
    """
    text = strip_reasoning(text)[-_MAX_WITH_JSON:]
    labels = list(_LABEL_OF_JSON.finditer(text))
    return list(_values(text[labels[-1].end() :] if labels else text))


def _plain(text: str) -> str:
    """Normalise text: lower case, no markup, single spaces."""
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
    """Return the values that a line names, by name.

    pattern: finds names in sentences.
    whole: values by all names.
    words: values by words that count next to a name: in its clause, as a clause, and in a labelled line.
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
    """Return the matches of a pattern in a clause, up to its first negation."""
    negation = _NEGATION.search(clause)
    end = len(clause) if negation is None else negation.start()
    return [match[0] for match in pattern.finditer(clause) if match.start() < end]


def _only(found: Mapping[str, T]) -> T | None:
    """Return the value if all names agree on one, else None."""
    values = list(found.values())
    return values[0] if values and all(value == values[0] for value in values) else None


def _values(text: str) -> Iterator[Any]:
    at = 0
    while (found := _BEGINNING_OF_JSON.search(text, at)) is not None:
        at = found.end()
        try:
            value, at = _decode(text, found.start())
        except RecursionError:
            return  # deep brackets: each of thousands would be tried again
        except ValueError:
            continue
        yield value
