"""Ask a language model, by the interface of OpenAI that most servers have.

The package `openai` would do less of this and takes half a second to import: its time-outs begin anew with
each byte, it reads replies of any length, and its retries count no budget.

LlmClient.chat
  budget used up?          BudgetError, before anything is sent
  POST /chat/completions   HttpClient: one deadline for the exchange
  429, 5xx, broken         again, after as long as the server asks, or longer each time
  other status, late       LlmError
  answer                   its tokens are added to `used`
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from parllel.distributed.operators.llm.answer import Answer, read_answer
from parllel.distributed.operators.llm.llm_error import BudgetError, LlmError
from parllel.distributed.operators.llm.llm_options import check_options, checked_url
from parllel.distributed.operators.llm.provider import provider_named
from parllel.distributed.operators.local_url import is_local
from parllel.distributed.web.http_client import HttpClient, HttpError, HttpResponse
from parllel.errors import ClosedError
from parllel.types import Closeable

Message = Mapping[str, str]
_MAX_BYTES = 4 << 20  # of a reply
_MAX_WAIT_S = 60.0  # that a server may ask for
_FIRST_DELAY_S, _MAX_DELAY_S = 0.5, 8.0  # where it does not ask
_QUOTED = 300  # characters of what a server says of a refusal
# Shorter keys are no secrets, but what servers without keys are sent ("EMPTY", "ollama"): hidden wherever
# they occur, they would change what a model says.
_SHORTEST_SECRET = 8


class LlmClient(Closeable):
    """Ask one model. Threads may share it.

    Args:
        model: its name, as the server knows it.
        base_url: to which "/chat/completions" is added; default the provider's.
        provider: "openai", "openrouter", "vllm" or "ollama"; with a `base_url`, any server that answers as
            OpenAI's does is "openai".
        api_key: sent as Bearer; None sends none. From 8 characters on it is in no message, repr or answer.
        timeout_s: for a reply, to its last byte. What takes longer is not asked again.
        retries: after a 429, a 5xx and a connection that broke; each waits as long as Retry-After says, up to
            60 s, else longer each time.
        token_budget: tokens of prompts and completions together; once they are used nothing more is asked.
        max_tokens: of an answer; None for the server's own limit.
        temperature: None for the server's own.

    Attributes:
        used: tokens so far.

    Raises:
        TypeError, ValueError: for an argument that cannot be.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        provider: str = "openai",
        api_key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 4,
        token_budget: int | None = None,
        max_tokens: int | None = 2048,
        temperature: float | None = None,
    ) -> None:
        numbers = {"timeout_s": timeout_s, "retries": retries, "token_budget": token_budget}
        numbers.update(max_tokens=max_tokens, temperature=temperature)
        check_options({"model": model, **numbers})
        found = provider_named(provider)
        self.base_url = checked_url(found.base_url if base_url is None else base_url)
        self.model, self.used = model, 0
        self._key = None if api_key is None else _checked_key(api_key)
        self._secrets = () if self._key is None else _written_forms(self._key)
        self._timeout_s, self._retries, self._budget = timeout_s, retries, token_budget
        self._lock = threading.Lock()
        self._options: dict[str, Any] = {}
        if max_tokens is not None:
            limit = found.limit if base_url is None else "max_tokens"
            self._options[limit] = max_tokens
        if temperature is not None:
            self._options["temperature"] = temperature
        self._headers = {"Content-Type": "application/json"}
        if self._key is not None:
            self._headers["Authorization"] = f"Bearer {self._key}"
        self._client = HttpClient(
            f"{self.base_url}/chat/completions",
            max_bytes=_MAX_BYTES,
            # A proxy would not find a server on this machine.
            use_proxies=not is_local(self.base_url),
            # One who names a model's server knows it, even on a cable between two machines.
            refuse_link_local=False,
        )
        self._closed = False

    def __repr__(self) -> str:
        return f"LlmClient({self.model!r}, base_url={self.base_url!r})"

    def chat(self, messages: Sequence[Message]) -> Answer:
        """Return the model's answer to a dialogue.

        messages: each {"role": "system" | "user" | "assistant", "content": text}.

        Raises:
            BudgetError: if the budget is used up.
            LlmError: if no answer came.
            ClosedError: after `close`.
        """
        if self._closed:
            raise ClosedError("LlmClient: used after it was closed")
        if self._budget is not None and self.used >= self._budget:
            raise BudgetError(
                f"{self.model}: the budget of {self._budget} tokens is used up ({self.used} were used); "
                "raise token_budget"
            )
        asked = {"model": self.model, "messages": list(messages), **self._options}
        # Halves of surrogate pairs, which environments and models write, are no UTF-8.
        body = json.dumps(asked).encode()
        begun = time.perf_counter()
        answer = self._answer(self._reply(body))
        return answer._replace(seconds=time.perf_counter() - begun)

    def close(self) -> None:
        """End what is being asked, and close the connections. Idempotent."""
        self._closed = True
        self._client.cancel()

    def _reply(self, body: bytes) -> HttpResponse:
        """Return a reply of status 200."""
        said, status = "", None
        for attempt in range(self._retries + 1):
            delay: float | None = None
            try:
                reply = self._client.post(body, self._headers, self._timeout_s)
            except TimeoutError:
                raise self._error(f"no reply within {self._timeout_s:g} s") from None
            except HttpError as error:
                if self._closed:
                    raise ClosedError("LlmClient: closed while it was used") from None
                if not error.may_pass:
                    raise self._error(error.reason) from None
                said, status = error.reason, None
            else:
                if reply.status == 200:
                    return reply
                said, status = self._refusal(reply), reply.status
                if status != 429 and status < 500:
                    raise self._error(said, status)
                delay = asked_delay(reply.headers.get("Retry-After", ""))
            if attempt == self._retries:
                break
            if delay is not None and delay > _MAX_WAIT_S:
                most = f"more than {_MAX_WAIT_S:.0f} s"
                raise self._error(f"{said}; it asks to wait {delay:.0f} s, {most}", status)
            time.sleep(own_delay(attempt) if delay is None else delay)
        attempts = f"{self._retries + 1} attempts" if self._retries else "1 attempt"
        raise self._error(f"{said}; after {attempts}", status)

    def _refusal(self, reply: HttpResponse) -> str:
        if 300 <= reply.status < 400:
            return f"status {reply.status}: a redirect, which is not followed; correct base_url"
        # Hidden before it is cut: half a key is a secret too.
        said = self._hidden(_said(reply.body))[:_QUOTED]
        return f"status {reply.status}: {said}" if said else f"status {reply.status}"

    def _answer(self, reply: HttpResponse) -> Answer:
        body = reply.body
        for secret in self._secrets:
            # What a server repeats of a request must not get into telemetry.
            body = body.replace(secret.encode(), b"(api_key)")
        try:
            answer = read_answer(body, self._hidden)
        except LlmError as error:
            self._count(error.answer)
            raise self._error(str(error), reply.status, error.answer) from None
        if answer.tokens is None and self._budget is not None:
            said = "its replies have no usage, by which token_budget counts"
            raise self._error(said, 200, answer)
        self._count(answer)
        return answer

    def _count(self, answer: Answer | None) -> None:
        if answer is not None and answer.tokens is not None:
            with self._lock:
                self.used += answer.tokens

    def _error(
        self, message: str, status: int | None = None, answer: Answer | None = None
    ) -> LlmError:
        error = LlmError(self._hidden(f"{self.model} at {self.base_url}: {message}"), status)
        error.answer = answer
        return error

    def _hidden(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "(api_key)")
        return text


def asked_delay(retry_after: str) -> float | None:
    """Return the seconds that a server asks a client to wait, by Retry-After; None if it does not say.

    retry_after: a number of seconds or a date (RFC 9110, section 10.2.3); "" without the header.
    """
    value = retry_after.strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except (TypeError, ValueError):
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        seconds = (when - datetime.now(timezone.utc)).total_seconds()
    # NaN is neither.
    return max(seconds, 0.0) if seconds == seconds else None


def own_delay(attempt: int) -> float:
    """Return the seconds to wait after attempt 0, 1, ...: longer each time, for each client another."""
    longest = min(_FIRST_DELAY_S * 2.0 ** min(attempt, 30), _MAX_DELAY_S)
    return longest * random.uniform(0.5, 1.0)


def _written_forms(key: str) -> tuple[str, ...]:
    """Return a key as text, and as JSON within text has it; nothing for one too short to be a secret."""
    if len(key) < _SHORTEST_SECRET:
        return ()
    quoted = json.dumps(key)[1:-1]
    return tuple(dict.fromkeys([key, quoted, quoted.replace("/", "\\/")]))


def _checked_key(key: object) -> str:
    # Never shown. A newline at the end is what files and shells add.
    text = key.strip() if isinstance(key, str) else ""
    if not text or not all(" " < letter < "\x7f" for letter in text):
        raise ValueError("api_key: expected printable ASCII without spaces")
    return text


def _said(body: bytes) -> str:
    """Return what a server says of a refusal, in one line."""
    text = body.decode("utf-8", "replace")
    try:
        found = json.loads(text)
        found = found.get("error", found)
        said = found["message"] if isinstance(found, dict) else found
        text = said if isinstance(said, str) else text
    except (AttributeError, KeyError, ValueError, RecursionError):
        pass
    return " ".join(text.split())
