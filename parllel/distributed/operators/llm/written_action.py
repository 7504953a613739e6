"""Actions that are written in JSON, found in an answer in prose."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from parllel.distributed.operators.llm.answered import without_thoughts

_LABEL = re.compile(r"(?:action|answer)\W*[:=]", re.IGNORECASE)
_BEGINNING = re.compile(r"[\[{]|-?\d")
_LONGEST = 10_000
_decode = json.JSONDecoder().raw_decode


def written_values(text: str) -> list[Any]:
    """Return the JSON values that an answer holds: those after the last "Action:", else all, in their order.

    Thoughts in <think> are left out, and of a value nothing inside it is another one.
    """
    text = without_thoughts(text)[-_LONGEST:]
    labels = list(_LABEL.finditer(text))
    return list(_values(text[labels[-1].end() :] if labels else text))


def _values(text: str) -> Iterator[Any]:
    at = 0
    while (found := _BEGINNING.search(text, at)) is not None:
        at = found.end()
        try:
            value, at = _decode(text, found.start())
        except RecursionError:
            return  # each bracket of thousands would be tried anew
        except ValueError:
            continue
        yield value
