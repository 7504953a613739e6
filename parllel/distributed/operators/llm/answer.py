"""What a language model answered."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from parllel.distributed.operators.llm.llm_error import LlmError

_MAX_TOKENS = 1 << 53
_QUOTED = 200  # characters of a reply in an error
_MAX_KEPT = 1 << 18  # characters of a message that are kept for records
_DEEPEST = 32  # lists and objects within each other that are kept
_LARGEST = 1 << 63
# What servers call an end at the limit of tokens.
_CUT = ("length", "max_tokens")
Hide = Callable[[str], str]


class Answer(NamedTuple):
    """What a language model answered.

    Attributes:
        text: "" if it said nothing.
        prompt_tokens, completion_tokens: as the server counts them; None if it does not.
        reason: why it ended, such as "stop", or "length" at the limit of tokens.
        seconds: from the question, retries and their pauses included.
        whole: the message as the server sent it, with the `finish_reason`, as JSON values: text, tool calls,
            refusal, reasoning. Of more than 262,144 characters it is the beginning, and says so.
    """

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reason: str | None = None
    seconds: float = 0.0
    whole: Mapping[str, Any] = MappingProxyType({})

    @property
    def is_cut(self) -> bool:
        """Whether it ended at the limit of tokens."""
        return self.reason in _CUT

    @property
    def tokens(self) -> int | None:
        """Tokens of prompt and completion; None if the server does not count."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens


def spent_on(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return what a Decision says of its answers; their tokens are None if the server does not count them."""
    prompt = _sum([answer.prompt_tokens for answer in answers])
    completion = _sum([answer.completion_tokens for answer in answers])
    return {
        "tokens": _sum([prompt, completion]),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "calls": len(answers),
        "answers": [dict(answer.whole) for answer in answers],
    }


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def read_answer(body: bytes, hide: Hide = str) -> Answer:
    """Return the answer in a reply of `/chat/completions`; its `seconds` are 0.

    hide: returns text without secrets.

    Raises:
        LlmError: if the reply is none; quotes its beginning. Its `answer` has the tokens, if the reply has.
    """
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        raise LlmError(f"expected a reply in JSON, got {_start(body)}") from None
    try:
        choice = reply["choices"][0]
        message = choice["message"]
        text = hide(_text(message.get("content")))
        reason = choice.get("finish_reason")
    except (AttributeError, KeyError, IndexError, TypeError):
        error = LlmError(f"expected choices with a message, got {_start(body)}")
        if isinstance(reply, dict) and reply.get("usage"):
            whole = _whole({"reply": reply}, hide)
            error.answer = Answer("", *_usage(reply["usage"]), whole=whole)
        raise error from None
    prompt, completion = _usage(reply.get("usage"))
    reason = reason if isinstance(reason, str) else None
    whole = _whole({**message, "finish_reason": reason}, hide)
    return Answer(text, prompt, completion, reason, whole=whole)


def _whole(message: Mapping[str, Any], hide: Hide) -> dict[str, Any]:
    """Return a message as records keep it."""
    said = {name: value for name, value in message.items() if value not in (None, "", [], {})}
    said.pop("role", None)
    kept: dict[str, Any] = _plain(said, hide, 0)
    text = json.dumps(kept, ensure_ascii=False)
    if len(text) <= _MAX_KEPT:
        return kept
    note = f"the first {_MAX_KEPT:,} of {len(text):,} characters"
    return {"finish_reason": kept.get("finish_reason"), "kept": note, "json": text[:_MAX_KEPT]}


def _plain(value: Any, hide: Hide, depth: int) -> Any:
    """Return JSON values that any writer and reader of JSON takes, without secrets."""
    if isinstance(value, str):
        # Models write halves of surrogate pairs, which UTF-8 has not.
        return hide(value).encode("utf-8", "replace").decode()
    if depth == _DEEPEST and isinstance(value, (dict, list)):
        return "(nested too deeply to be kept)"
    if isinstance(value, dict):
        return {
            _plain(key, hide, depth): _plain(part, hide, depth + 1) for key, part in value.items()
        }
    if isinstance(value, list):
        return [_plain(part, hide, depth + 1) for part in value]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and not (math.isfinite(value) and -_LARGEST <= value < _LARGEST):
        return str(value)
    return value


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
    return value if is_count and 0 <= value < _MAX_TOKENS else None


def _start(body: bytes) -> str:
    return repr(body[:_QUOTED].decode("utf-8", "replace"))
