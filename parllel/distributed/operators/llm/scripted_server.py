"""Server with a language model's interface that answers by rules, for tests and trials without a key.

client     POST /v1/chat/completions, /v1/messages, or /v1beta/models/MODEL:generateContent
server     the first matching Rule that is not used up  -->  a completion, or a scripted failure
test       `requests`: all requests so far, in order
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from parllel.distributed.operators.llm.provider import provider_named
from parllel.distributed.web.app import App, Route
from parllel.distributed.web.request import Request, Response
from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.web_error import WebError
from parllel.distributed.web.web_server import WebServer
from parllel.distributed.wire.json_text import json_bytes
from parllel.types import Closeable

Messages = Sequence[Mapping[str, str]]
_SLICE_S = 0.02  # between looks at whether the server ends
# Phrases of our workers' questions, from which random answers are drawn.
_MOVES = re.compile(r"^Legal moves: (.+)$", re.MULTILINE)
_LISTED = re.compile(r"^(?:Legal actions|Actions): (.+?)\.?$", re.MULTILINE)
_NUMBERS = re.compile(r"a whole number from (-?\d+) to (-?\d+)")
_LIST = re.compile(r"of shape \[(\d+)\], from (-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?)")
_MENU = re.compile(r"one of these actions:\n((?:.+: .+\n?)+)")


@dataclass(frozen=True)
class Rule:
    """Scripted answer to matching requests.

    Args:
        text: text of the answer, or a function that returns it for the messages. None for no
            content.
        contains: matches requests whose last message contains this text.
        times: number of requests that the rule answers. None means all.
        status: HTTP status of the reply. Unless it is 200, the body holds the text as an error.
        headers: headers added to the reply.
        delay_s: delay in seconds before the reply starts.
        body: body of the reply, instead of a completion.
        cut: number of body bytes after which the connection breaks. 0 breaks it after the headers.
        trickle_s: delay in seconds between any two bytes of the body.
        message: further fields of the message, such as tool_calls, refusal or reasoning_content. For
            Anthropic and Gemini: further fields of the reply.
        finish_reason: reason why the answer ends, such as "length" at the token limit, in OpenAI's words.
        usage: numbers of prompt and completion tokens. Default: their numbers of words. None leaves
            them out.
        echoes_key: append the request's Authorization header to the text.
    """

    text: str | Callable[[Messages], str] | None = ""
    contains: str | None = None
    times: int | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    body: bytes | None = None
    cut: int | None = None
    trickle_s: float = 0.0
    message: Mapping[str, Any] = field(default_factory=dict)
    finish_reason: str = "stop"
    usage: tuple[int, int] | str | None = "words"
    echoes_key: bool = False

    def fits(self, messages: Messages, n_used: int) -> bool:
        """Return whether the rule answers this request after having answered `n_used` others."""
        if self.times is not None and n_used >= self.times:
            return False
        return self.contains is None or self.contains in messages[-1]["content"]


@dataclass(frozen=True)
class ScriptedRequest:
    """A received request.

    Attributes:
        body: its body as JSON values.
        authorization: header with the key: Authorization, x-api-key or x-goog-api-key.
        messages: messages of the dialogue in OpenAI's form.
    """

    body: Mapping[str, Any]
    authorization: str | None
    messages: Messages


class ScriptedServer(Closeable):
    """Server on 127.0.0.1 that serves from construction until `close`.

    Args:
        rules: rules in order. The first matching one answers a request; if none matches, the reply
            is a 404. With None, the server answers the questions of our workers with random legal
            actions.
        port: port to listen on. 0 chooses a free port.
        provider: the provider whose interface it has: "openai", "anthropic" or "gemini".
        model: name of the model, which is part of Gemini's URL.

    Raises:
        ValueError: for another provider.

    Attributes:
        base_url: the `base_url` for an LlmClient.
        requests: the requests received so far.

    Example:
        >>> with ScriptedServer([Rule("left", times=1), Rule("right")]) as server:
        ...     answer = LlmClient("any", base_url=server.base_url).chat(messages)
    """

    def __init__(
        self,
        rules: Sequence[Rule] | None = None,
        *,
        port: int = 0,
        provider: str = "openai",
        model: str = "any",
    ) -> None:
        if provider not in _FORMS:
            raise ValueError(f"provider: expected one of {', '.join(_FORMS)}; got {provider!r}")
        self._form = _FORMS[provider]
        self.requests: list[ScriptedRequest] = []
        self._rules = [Rule(random_answer)] if rules is None else list(rules)
        self._used = [0] * len(self._rules)
        self._lock = threading.Lock()
        # end_s: requests of tests may hang on purpose and are not waited for.
        settings = ServerSettings(port=port, max_body_bytes=16 << 20, end_s=0.2)
        path = self._form.base + provider_named(provider).protocol.path(model)
        routes = [Route(path, {"POST": self._answer})]
        self._server = WebServer(
            _ScriptedApp({route.path: route for route in routes}, settings, True, {})
        )
        self._server.start()
        self.base_url = f"{self._server.url}{self._form.base}"

    def close(self) -> None:
        """Stop the server. Idempotent."""
        self._server.close()

    async def _answer(self, request: Request) -> Response:
        body = request.json()
        try:
            messages = self._form.read(body)
            _ = [message["role"] + message["content"] for message in messages]
        except (KeyError, TypeError, IndexError):
            raise WebError(400, "expected a model, and messages with role and content") from None
        key = request.header(self._form.key)
        with self._lock:
            self.requests.append(ScriptedRequest(body, key, messages))
            rule = self._rule(messages)
        _MANNER.set(rule)
        return _reply(rule, self._form, messages, key or "")

    def _rule(self, messages: Messages) -> Rule:
        for i, rule in enumerate(self._rules):
            if messages and rule.fits(messages, self._used[i]):
                self._used[i] += 1
                return rule
        raise WebError(404, "no rule matches")


class _Form(NamedTuple):
    """How a provider writes requests and replies."""

    base: str
    key: str  # header
    read: Callable[[Any], Messages]
    # Of text, further fields, reason and usage.
    write: Callable[[str | None, Mapping[str, Any], str, tuple[int, int] | None], dict[str, Any]]


def _read_openai(body: Any) -> Messages:
    messages: Messages = body["messages"]
    _ = body["model"] + ""
    return messages


def _write_openai(
    text: str | None, more: Mapping[str, Any], reason: str, usage: tuple[int, int] | None
) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, **more}
    choices = [{"index": 0, "message": message, "finish_reason": reason}]
    counts = usage and {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return {
        "object": "chat.completion",
        "choices": choices,
        **({"usage": counts} if counts else {}),
    }


def _read_anthropic(body: Any) -> Messages:
    _ = body["model"] + "", body["max_tokens"] + 0
    system = [{"role": "system", "content": body["system"]}] if "system" in body else []
    return [*system, *body["messages"]]


def _write_anthropic(
    text: str | None, more: Mapping[str, Any], reason: str, usage: tuple[int, int] | None
) -> dict[str, Any]:
    content = [] if text is None else [{"type": "text", "text": text}]
    counts = usage and {"input_tokens": usage[0], "output_tokens": usage[1]}
    reason = {"stop": "end_turn", "length": "max_tokens"}.get(reason, reason)
    reply = {"type": "message", "role": "assistant", "content": content, "stop_reason": reason}
    return {**reply, **({"usage": counts} if counts else {}), **more}


def _read_gemini(body: Any) -> Messages:
    names = {"user": "user", "model": "assistant"}
    system = (
        [{"role": "system", "content": _parts(body["systemInstruction"])}]
        if "systemInstruction" in body
        else []
    )
    turns = [{"role": names[one["role"]], "content": _parts(one)} for one in body["contents"]]
    return [*system, *turns]


def _parts(content: Any) -> str:
    return "".join(part["text"] for part in content["parts"])


def _write_gemini(
    text: str | None, more: Mapping[str, Any], reason: str, usage: tuple[int, int] | None
) -> dict[str, Any]:
    parts = [] if text is None else [{"text": text}]
    reason = {"stop": "STOP", "length": "MAX_TOKENS"}.get(reason, reason)
    counts = usage and {"promptTokenCount": usage[0], "candidatesTokenCount": usage[1]}
    candidates = [{"content": {"role": "model", "parts": parts}, "finishReason": reason}]
    return {"candidates": candidates, **({"usageMetadata": counts} if counts else {}), **more}


_FORMS = {
    "openai": _Form("/v1", "authorization", _read_openai, _write_openai),
    "anthropic": _Form("/v1", "x-api-key", _read_anthropic, _write_anthropic),
    "gemini": _Form("/v1beta", "x-goog-api-key", _read_gemini, _write_gemini),
}


def _reply(rule: Rule, form: _Form, messages: Messages, key: str) -> Response:
    text = rule.text(messages) if callable(rule.text) else rule.text
    if rule.echoes_key:
        text = f"{text or ''} {key}"
    headers = tuple(
        (name.lower().encode(), value.encode("latin-1")) for name, value in rule.headers.items()
    )
    value: dict[str, Any] = {"error": {"message": text, "type": "scripted"}}
    if rule.status == 200:
        counts = rule.usage
        if isinstance(counts, str):
            asked = sum(len(message["content"].split()) for message in messages)
            counts = (asked, len((text or "").split()))
        value = form.write(text, rule.message, rule.finish_reason, counts)
    body = json_bytes(value) if rule.body is None else rule.body
    return Response(body, rule.status, headers=headers)


# Rule of the request that the current task serves: a Response holds what to send, but not how slowly.
_MANNER: ContextVar[Rule | None] = ContextVar("_MANNER", default=None)


class _ScriptedApp(App):
    """Sends replies late, slowly, or in part, as their rules say."""

    async def answer(
        self, request: Request, read_body: Callable[[], Awaitable[bytes | None]]
    ) -> Response | None:
        _MANNER.set(None)
        reply = await super().answer(request, read_body)
        rule = _MANNER.get()
        if rule is None or reply is None:
            return reply
        await self._pause(rule.delay_s)
        if rule.cut is None and not rule.trickle_s:
            return reply
        return replace(reply, parts=self._parts(rule, reply.body[: rule.cut]))

    async def _parts(self, rule: Rule, body: bytes) -> AsyncIterator[bytes]:
        n = 1 if rule.trickle_s else max(len(body), 1)
        for i in range(0, len(body), n):
            yield body[i : i + n]
            await self._pause(rule.trickle_s)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not beyond the end of the server."""
        until = asyncio.get_running_loop().time() + seconds
        while not self.ending and (left := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left, _SLICE_S))


def random_answer(messages: Messages) -> str:
    """Return a legal action in the form that our workers ask for.

    It acts as a model that understands the questions and chooses at random. The same dialogue
    always gets the same answer.
    """
    generator = random.Random(json.dumps([dict(message) for message in messages]))
    rules, last = messages[0]["content"], messages[-1]["content"]
    if (found := _MOVES.search(last)) is not None:
        return f"make move {generator.choice(found[1].split())}"
    if "get legal moves" in rules:
        return "get legal moves"
    action = _random_action(generator, rules, last)
    return "I do not know what to do." if action is None else f"Action: {action}"


def _random_action(generator: random.Random, rules: str, last: str) -> Any:
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
