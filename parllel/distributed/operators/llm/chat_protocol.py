"""Interfaces of language model servers: paths, headers, requests and replies.

LlmClient --- messages ---> ChatProtocol.request --->  JSON  ---> server
          <-- ChatReply --- ChatProtocol.read    <---  JSON  <---
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import quote

Messages = Sequence[Mapping[str, str]]


class ChatReply(NamedTuple):
    """A decoded reply. Values are as the server sent them, and may have any type.

    Attributes:
        content: text of the answer, None, or a list of parts.
        reason: why the answer ended.
        message: everything else that is kept in records.
        prompt_tokens, completion_tokens: numbers of tokens.
    """

    content: Any
    reason: Any
    message: Mapping[str, Any]
    prompt_tokens: Any
    completion_tokens: Any


class ChatProtocol(ABC):
    """Interface of a server.

    Attributes:
        expected: what a reply contains, for errors.
        needs_limit: whether a request must have a token limit.
    """

    expected: str
    needs_limit = False

    @abstractmethod
    def path(self, model: str) -> str:
        """Return the path that is added to the base URL."""

    @abstractmethod
    def headers(self, key: str) -> Mapping[str, str]:
        """Return the headers that carry the key."""

    @abstractmethod
    def request(
        self, model: str, messages: Messages, max_tokens: int | None, temperature: float | None
    ) -> dict[str, Any]:
        """Return the request as JSON values."""

    @abstractmethod
    def read(self, reply: Any) -> ChatReply:
        """Return the content of a reply.

        Raises:
            AttributeError, KeyError, IndexError, TypeError: if it has none.
        """

    @abstractmethod
    def usage(self, reply: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the numbers of prompt and completion tokens of any reply; None where there is none."""


class OpenAiProtocol(ChatProtocol):
    """OpenAI's `/chat/completions`, which most servers offer.

    Args:
        limit: name of the token limit in a request.
    """

    expected = "choices with a message"

    def __init__(self, limit: str = "max_tokens") -> None:
        self._limit = limit

    def path(self, model: str) -> str:
        """Return "/chat/completions"."""
        return "/chat/completions"

    def headers(self, key: str) -> Mapping[str, str]:
        """Return the key as a Bearer token."""
        return {"Authorization": f"Bearer {key}"}

    def request(
        self, model: str, messages: Messages, max_tokens: int | None, temperature: float | None
    ) -> dict[str, Any]:
        """Return the dialogue as it is."""
        options = {self._limit: max_tokens, "temperature": temperature}
        return {"model": model, "messages": list(messages), **_given(options)}

    def read(self, reply: Any) -> ChatReply:
        """Return the first choice."""
        choice = reply["choices"][0]
        message = choice["message"]
        return ChatReply(
            message.get("content"), choice.get("finish_reason"), message, *self.usage(reply)
        )

    def usage(self, reply: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return `prompt_tokens` and `completion_tokens`."""
        counts = _part(reply, "usage")
        return counts.get("prompt_tokens"), counts.get("completion_tokens")


class AnthropicProtocol(ChatProtocol):
    """Anthropic's Messages API, version 2023-06-01."""

    expected = "a list of content"
    needs_limit = True

    def path(self, model: str) -> str:
        """Return "/messages"."""
        return "/messages"

    def headers(self, key: str) -> Mapping[str, str]:
        """Return the key, and the version of the API."""
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}

    def request(
        self, model: str, messages: Messages, max_tokens: int | None, temperature: float | None
    ) -> dict[str, Any]:
        """Return the turns, with the system's messages beside them."""
        system, turns = _turns(messages)
        options = {"system": system, "max_tokens": max_tokens, "temperature": temperature}
        dialogue = [{"role": role, "content": text} for role, text in turns]
        return {"model": model, "messages": dialogue, **_given(options)}

    def read(self, reply: Any) -> ChatReply:
        """Return the blocks of text; others, such as thinking and tool calls, are kept in the message."""
        blocks = reply["content"]
        texts = [block for block in blocks if block["type"] == "text"]
        return ChatReply(texts, reply.get("stop_reason"), {"content": blocks}, *self.usage(reply))

    def usage(self, reply: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return all input tokens, from a cache or not, and the output tokens."""
        counts = _part(reply, "usage")
        cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
        return (
            _sum(counts.get("input_tokens"), *(counts.get(name) for name in cached)),
            counts.get("output_tokens"),
        )


class GeminiProtocol(ChatProtocol):
    """Google's `generateContent` of the Gemini API."""

    expected = "candidates"

    def path(self, model: str) -> str:
        """Return the method of the model."""
        return f"/models/{quote(model, safe='')}:generateContent"

    def headers(self, key: str) -> Mapping[str, str]:
        """Return the key."""
        return {"x-goog-api-key": key}

    def request(
        self, model: str, messages: Messages, max_tokens: int | None, temperature: float | None
    ) -> dict[str, Any]:
        """Return the turns, with the system's messages beside them."""
        system, turns = _turns(messages)
        names = {"user": "user", "assistant": "model"}
        instruction = None if system is None else {"parts": [{"text": system}]}
        options = _given({"maxOutputTokens": max_tokens, "temperature": temperature})
        return {
            "contents": [{"role": names[role], "parts": [{"text": text}]} for role, text in turns],
            **_given({"systemInstruction": instruction, "generationConfig": options or None}),
        }

    def read(self, reply: Any) -> ChatReply:
        """Return the first candidate without its thoughts, or the reason why the prompt was blocked."""
        blocked = _part(reply, "promptFeedback").get("blockReason")
        if blocked and not reply.get("candidates"):
            return ChatReply(None, blocked, reply["promptFeedback"], *self.usage(reply))
        candidate = reply["candidates"][0]
        # A candidate that was stopped, for example for safety, has no content.
        parts = _part(candidate, "content").get("parts", [])
        texts = [part for part in parts if "text" in part and not part.get("thought")]
        return ChatReply(
            texts, candidate.get("finishReason"), {"content": parts}, *self.usage(reply)
        )

    def usage(self, reply: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the tokens of the prompt, and those of candidates and thoughts."""
        counts = _part(reply, "usageMetadata")
        answered = counts.get("candidatesTokenCount")
        prompt = counts.get("promptTokenCount")
        if answered is None and prompt is not None:
            answered = 0  # left out if there is no candidate
        return prompt, _sum(answered, counts.get("thoughtsTokenCount"))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _part(reply: Any, name: str) -> Mapping[str, Any]:
    found = reply.get(name)
    return found if isinstance(found, Mapping) else {}


def _sum(first: Any, *others: Any) -> Any:
    """Return the sum of counts, of which only the first must exist."""
    if type(first) is not int:
        return first
    return first + sum(count for count in others if type(count) is int and count > 0)


def _turns(messages: Messages) -> tuple[str | None, list[tuple[str, str]]]:
    """Split a dialogue into the system's text, and turns of user and assistant that alternate.

    Empty messages are left out: both APIs refuse them.
    """
    found = [(one["role"], one["content"]) for one in messages if one["content"].strip()]
    system = "\n\n".join(text for role, text in found if role == "system")
    others = [one for one in found if one[0] != "system"]
    turns = [
        (role, "\n\n".join(text for _, text in group))
        for role, group in groupby(others, key=lambda one: one[0])
    ]
    return system or None, turns
