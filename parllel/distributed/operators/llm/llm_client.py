"""Client of language models, for OpenAI's, Anthropic's and Google's interfaces.

Packages such as `openai` take half a second to import and offer less: their timeouts restart with each byte,
they read replies of any length, and their retries count against no budget.

LlmClient.chat
  budget used up?          BudgetError, before anything is sent
  POST                     HttpClient: one deadline for the whole exchange
  429, 5xx, broken         retried, after the server's Retry-After, or growing delays
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

from parllel.distributed.operators.llm.answer import Answer, read_answer
from parllel.distributed.operators.llm.chat_protocol import OpenAiProtocol
from parllel.distributed.operators.llm.llm_error import BudgetError, LlmError
from parllel.distributed.operators.llm.llm_options import check_options, checked_url
from parllel.distributed.operators.llm.provider import provider_named
from parllel.distributed.operators.local_url import is_local
from parllel.distributed.web.http_client import HttpClient, HttpError, HttpResponse
from parllel.errors import ClosedError
from parllel.types import Closeable

Message = Mapping[str, str]
_MAX_BYTES = 4 << 20  # of a reply
_MAX_WAIT_S = 60.0  # longest Retry-After that is obeyed
_FIRST_DELAY_S, _MAX_DELAY_S = 0.5, 8.0  # without Retry-After
_QUOTED = 300  # characters of a server's refusal in an error
# Shorter keys are no secrets but placeholders for servers without keys ("EMPTY", "ollama"). Hiding these
# wherever they occur would change a model's answers.
_SHORTEST_SECRET = 8


class LlmClient(Closeable):
    """Client of one model. Thread-safe.

    Args:
        model: name of the model, as the server knows it.
        base_url: base URL, to which the path of the interface is added. Default: the URL of the provider.
        provider: "openai", "anthropic", "gemini", "openrouter", "vllm" or "ollama". With a `base_url`,
            it names the interface of that server; all but "anthropic" and "gemini" have OpenAI's.
        api_key: key sent in the interface's header. With None, no key is sent. A key of 8 characters or more
            never appears in a message, repr or answer.
        timeout_s: time limit in seconds for a reply, up to its last byte. A timeout is not retried.
        retries: number of retries after a 429, a 5xx or a broken connection. The delay is taken
            from Retry-After, up to 60 s. Without this header it grows with each attempt.
        token_budget: limit of prompt and completion tokens together. Once it is used up, no more
            requests are sent.
        max_tokens: maximum number of tokens of an answer. None uses the server's limit.
        temperature: sampling temperature. None uses the server's default.

    Attributes:
        used: number of tokens used so far.

    Raises:
        TypeError, ValueError: for an invalid argument.
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
        check_options({"model": model, "provider": provider, **numbers})
        found = provider_named(provider)
        self.base_url = checked_url(found.base_url if base_url is None else base_url)
        self.model, self.used = model, 0
        self._key = None if api_key is None else _checked_key(api_key)
        self._secrets = () if self._key is None else _written_forms(self._key)
        self._timeout_s, self._retries, self._budget = timeout_s, retries, token_budget
        self._lock = threading.Lock()
        self._protocol = found.protocol
        if isinstance(self._protocol, OpenAiProtocol) and base_url is not None:
            self._protocol = OpenAiProtocol()
        self._max_tokens, self._temperature = max_tokens, temperature
        self._headers = {"Content-Type": "application/json"}
        if self._key is not None:
            self._headers.update(self._protocol.headers(self._key))
        self._client = HttpClient(
            f"{self.base_url}{self._protocol.path(model)}",
            max_bytes=_MAX_BYTES,
            # A proxy could not reach a server on this machine.
            use_proxies=not is_local(self.base_url),
            # Whoever configures a model's server trusts it, even on a link-local address.
            refuse_link_local=False,
        )
        self._closed = False

    def __repr__(self) -> str:
        return f"LlmClient({self.model!r}, base_url={self.base_url!r})"

    def chat(self, messages: Sequence[Message]) -> Answer:
        """Return the model's answer to a dialogue.

        messages: dicts of the form {"role": "system" | "user" | "assistant", "content": text}.

        Raises:
            BudgetError: if the budget is used up.
            LlmError: if the server gives no answer.
            ClosedError: after `close`.
        """
        if self._closed:
            raise ClosedError("LlmClient: used after it was closed")
        if self._budget is not None and self.used >= self._budget:
            raise BudgetError(
                f"{self.model}: the budget of {self._budget} tokens is used up ({self.used} tokens "
                "used); raise token_budget"
            )
        limits = self._max_tokens, self._temperature
        request = self._protocol.request(self.model, messages, *limits)
        # ASCII escapes: environments and models emit unpaired surrogates, which UTF-8 cannot encode.
        body = json.dumps(request).encode()
        begun = time.perf_counter()
        answer = self._answer(self._reply(body))
        return answer._replace(seconds=time.perf_counter() - begun)

    def close(self) -> None:
        """Cancel requests in progress and close the connections. Idempotent."""
        self._closed = True
        self._client.cancel()

    def _reply(self, body: bytes) -> HttpResponse:
        """Return a reply of status 200, retrying as described above."""
        reason, status = "", None
        for attempt in range(self._retries + 1):
            delay: float | None = None
            try:
                reply = self._client.post(body, self._headers, self._timeout_s)
            except TimeoutError:
                # Not retried: the server may be working on it, and each attempt could take as long.
                raise self._error(f"no reply within {self._timeout_s:g} s") from None
            except HttpError as error:
                if self._closed:
                    raise ClosedError("LlmClient: closed while it was used") from None
                if not error.may_pass:
                    raise self._error(error.reason) from None
                reason, status = error.reason, None
            else:
                if reply.status == 200:
                    return reply
                reason, status = self._refusal(reply), reply.status
                if status != 429 and status < 500:
                    raise self._error(reason, status)
                delay = asked_delay(reply.headers.get("Retry-After", ""))
            if attempt == self._retries:
                break
            if delay is not None and delay > _MAX_WAIT_S:
                limit = f"more than {_MAX_WAIT_S:.0f} s"
                raise self._error(f"{reason}; it asks to wait {delay:.0f} s, {limit}", status)
            time.sleep(own_delay(attempt) if delay is None else delay)
        attempts = f"{self._retries + 1} attempts" if self._retries else "1 attempt"
        raise self._error(f"{reason}; after {attempts}", status)

    def _refusal(self, reply: HttpResponse) -> str:
        if 300 <= reply.status < 400:
            return f"status {reply.status}: redirects are not followed; correct base_url"
        # Hidden before it is cut: half a key would not be recognised.
        reason = self._hidden(_refusal_text(reply.body))[:_QUOTED]
        return f"status {reply.status}: {reason}" if reason else f"status {reply.status}"

    def _answer(self, reply: HttpResponse) -> Answer:
        body = reply.body
        for secret in self._secrets:
            # A server may echo the request; the key must not get into telemetry.
            body = body.replace(secret.encode(), b"(api_key)")
        try:
            answer = read_answer(body, self._hidden, self._protocol)
        except LlmError as error:
            # Counted even though it cannot be used: the server charges for it.
            self._count(error.answer)
            raise self._error(str(error), reply.status, error.answer) from None
        if answer.tokens is None and self._budget is not None:
            reason = "its replies have no usage, which token_budget needs"
            raise self._error(reason, 200, answer)
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
    """Return the delay in seconds that a server asks for by Retry-After, or None.

    retry_after: value of the header, a number of seconds or a date (RFC 9110, section 10.2.3); ""
        if the header is missing.
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
    # NaN differs from itself.
    return max(seconds, 0.0) if seconds == seconds else None


def own_delay(attempt: int) -> float:
    """Return the delay in seconds after attempt 0, 1, ...: exponential, with jitter between clients."""
    longest = min(_FIRST_DELAY_S * 2.0 ** min(attempt, 30), _MAX_DELAY_S)
    return longest * random.uniform(0.5, 1.0)


def _written_forms(key: str) -> tuple[str, ...]:
    """Return the forms in which a key may appear in text; none for one too short to be a secret."""
    if len(key) < _SHORTEST_SECRET:
        return ()
    quoted = json.dumps(key)[1:-1]
    return tuple(dict.fromkeys([key, quoted, quoted.replace("/", "\\/")]))


def _checked_key(key: object) -> str:
    # Errors never show the key. Files and shells add a newline at the end.
    text = key.strip() if isinstance(key, str) else ""
    if not text or not all(" " < letter < "\x7f" for letter in text):
        raise ValueError("api_key: expected printable ASCII without spaces")
    return text


def _refusal_text(body: bytes) -> str:
    """Return the error text of a server's reply, in one line."""
    text = body.decode("utf-8", "replace")
    try:
        found = json.loads(text)
        found = found.get("error", found)
        message = found["message"] if isinstance(found, dict) else found
        text = message if isinstance(message, str) else text
    except (AttributeError, KeyError, ValueError, RecursionError):
        pass
    return " ".join(text.split())
