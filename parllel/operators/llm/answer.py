"""What a language model answered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from parllel.operators.llm.llm_error import LlmError

_MOST_TOKENS = 1 << 53
_QUOTED = 200  # characters of a reply in an error


class Answer(NamedTuple):
    """What a language model answered.

    Attributes:
        text: "" if it said nothing.
        prompt_tokens, completion_tokens: as the server counts them; None if it does not.
        reason: why it ended, such as "stop", or "length" at the limit of tokens.
        seconds: from the question, retries and their pauses included.
    """

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reason: str | None = None
    seconds: float = 0.0

    @property
    def tokens(self) -> int | None:
        """Tokens of prompt and completion; None if the server does not count."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens


def tokens_of(answers: Sequence[Answer]) -> dict[str, int | None]:
    """Return the sums of several answers, as a Decision has them; None for what a server does not count."""
    prompt = _sum([answer.prompt_tokens for answer in answers])
    completion = _sum([answer.completion_tokens for answer in answers])
    return {
        "tokens": _sum([prompt, completion]),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
    }


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def read_answer(body: bytes) -> Answer:
    """Return the answer in a reply of `/chat/completions`; its `seconds` are 0.

    Raises:
        LlmError: if the reply is none; quotes its beginning.
    """
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        raise LlmError(f"expected a reply in JSON, got {_start(body)}") from None
    try:
        choice = reply["choices"][0]
        text = _text(choice["message"].get("content"))
        reason = choice.get("finish_reason")
        prompt, completion = _usage(reply.get("usage"))
    except (AttributeError, KeyError, IndexError, TypeError):
        raise LlmError(f"expected choices with a message, got {_start(body)}") from None
    return Answer(text, prompt, completion, reason if isinstance(reason, str) else None)


def _text(content: Any) -> str:
    """Return the text of a message, which some servers send in parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part.get("type", "text") == "text")


def _usage(usage: Any) -> tuple[int | None, int | None]:
    counts = usage if isinstance(usage, Mapping) else {}
    prompt, completion = (counts.get(f"{kind}_tokens") for kind in ("prompt", "completion"))
    return _count(prompt), _count(completion)


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    # Not what records and other readers of JSON cannot hold.
    return value if is_count and 0 <= value < _MOST_TOKENS else None


def _start(body: bytes) -> str:
    return repr(body[:_QUOTED].decode("utf-8", "replace"))
