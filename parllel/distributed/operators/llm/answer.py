"""Answers of a language model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from parllel.distributed.operators.llm.chat_protocol import ChatProtocol, OpenAiProtocol
from parllel.distributed.operators.llm.llm_error import LlmError

_MAX_TOKENS = 1 << 53  # larger counts are not exact in JSON readers
_QUOTED = 200  # characters of a reply in an error
_MAX_KEPT = 1 << 18  # characters of a message kept in records
_DEEPEST = 32  # nesting kept in records
_LARGEST = 1 << 63  # integers beyond this are kept as text
# Finish reasons of servers for an answer that reached the token limit.
_CUT = ("length", "max_tokens", "MAX_TOKENS")
Hide = Callable[[str], str]


class Answer(NamedTuple):
    """An answer of a language model.

    Attributes:
        text: text of the answer; "" if there is none.
        prompt_tokens, completion_tokens: numbers of tokens as counted by the server. None if the
            server does not count them.
        reason: why the answer ended, such as "stop", or "length" at the token limit.
        seconds: time from sending the question to the end of the answer, including retries and
            their pauses.
        whole: the message as sent by the server plus `finish_reason`, as JSON values: text, tool
            calls, refusal, reasoning. A message of more than 262,144 characters is cut and marked
            as such.
    """

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reason: str | None = None
    seconds: float = 0.0
    whole: Mapping[str, Any] = MappingProxyType({})

    @property
    def is_cut(self) -> bool:
        """Whether the answer ended at the token limit."""
        return self.reason in _CUT

    @property
    def tokens(self) -> int | None:
        """Tokens of prompt and completion together. None if the server does not count them."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens


def spent_on(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the costs and answers for a Decision. Tokens are None if the server does not count them."""
    prompt = _sum([answer.prompt_tokens for answer in answers])
    completion = _sum([answer.completion_tokens for answer in answers])
    return {
        "tokens": _sum([prompt, completion]),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "calls": len(answers),
        "answers": [dict(answer.whole) for answer in answers],
    }


def prompts_of(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the messages of a dialogue that are not answers, in the form kept in records."""
    return [
        {"role": message["role"], "content": _kept_text(message["content"])}
        for message in messages
        if message["role"] != "assistant"
    ]


def _kept_text(text: str) -> str:
    # Environments emit unpaired surrogates, which UTF-8 cannot encode.
    kept = text[:_MAX_KEPT].encode("utf-8", "replace").decode()
    if len(text) <= _MAX_KEPT:
        return kept
    return f"{kept}\n(the first {_MAX_KEPT:,} of {len(text):,} characters)"


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def read_answer(body: bytes, hide: Hide = str, protocol: ChatProtocol | None = None) -> Answer:
    """Decode a reply. The answer's `seconds` are 0.

    hide: function that removes secrets from a text.  protocol: the server's interface; None: OpenAI's.

    Raises:
        LlmError: if the reply contains no answer. The message quotes the beginning of the reply.
            The error's `answer` holds the token counts if the reply reports them.
    """
    protocol = protocol or OpenAiProtocol()
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        raise LlmError(f"expected a reply in JSON, got {_start(body)}") from None
    try:
        content, found, message, *counts = protocol.read(reply)
        text = hide(_text(content))
        kept = dict(message)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        error = LlmError(f"expected {protocol.expected}, got {_start(body)}")
        if isinstance(reply, dict):
            prompt, completion = map(_count, protocol.usage(reply))
            if prompt is not None or completion is not None:
                error.answer = Answer("", prompt, completion, whole=_whole({"reply": reply}, hide))
        raise error from None
    prompt, completion = map(_count, counts)
    reason = found if isinstance(found, str) else None
    whole = _whole({**kept, "finish_reason": reason}, hide)
    return Answer(text, prompt, completion, reason, whole=whole)


def _whole(message: Mapping[str, Any], hide: Hide) -> dict[str, Any]:
    """Return a message in the form kept in records."""
    fields = {name: value for name, value in message.items() if value not in (None, "", [], {})}
    fields.pop("role", None)
    kept: dict[str, Any] = _plain(fields, hide, 0)
    text = json.dumps(kept, ensure_ascii=False)
    if len(text) <= _MAX_KEPT:
        return kept
    note = f"the first {_MAX_KEPT:,} of {len(text):,} characters"
    return {"finish_reason": kept.get("finish_reason"), "kept": note, "json": text[:_MAX_KEPT]}


def _plain(value: Any, hide: Hide, depth: int) -> Any:
    """Return JSON values without secrets that any JSON writer and reader accepts."""
    if isinstance(value, str):
        # Models emit unpaired surrogates, which UTF-8 cannot encode.
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
    """Return the text of a message, which some servers send as a list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part.get("type", "text") == "text")


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    # Larger counts could not be held by records and other JSON readers.
    return value if is_count and 0 <= value < _MAX_TOKENS else None


def _start(body: bytes) -> str:
    return repr(body[:_QUOTED].decode("utf-8", "replace"))
