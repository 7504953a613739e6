from __future__ import annotations

import asyncio
import threading
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from scripted import HELLO, KEY, refused, scripted

from parllel.distributed.operators.llm import llm_client
from parllel.distributed.operators.llm.llm_client import LlmClient, asked_delay, own_delay
from parllel.distributed.operators.llm.llm_error import BudgetError
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer
from parllel.errors import ClosedError


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between attempts, which are not made."""
    found = []
    monkeypatch.setattr(llm_client.time, "sleep", found.append)
    return found


def test_an_answer_has_its_text_and_tokens():
    with scripted(Rule("go left"), max_tokens=7, temperature=0.5) as (client, server):
        answer = client.chat(HELLO)
        client.chat(HELLO)
    assert answer[:4] == ("go left", 2, 2, "stop")
    assert (answer.tokens, client.used) == (4, 8)
    request = server.requests[0]
    assert request.body == {
        "model": "any",
        "messages": HELLO,
        "max_tokens": 7,
        "temperature": 0.5,
    }
    assert request.authorization == f"Bearer {KEY}"


def test_without_a_key_none_is_sent():
    with scripted(Rule("hi"), api_key=None) as (client, server):
        client.chat(HELLO)
    assert server.requests[0].authorization is None


@pytest.mark.parametrize(
    "rule",
    [
        Rule(status=429, times=2),
        Rule(status=500, times=2),
        Rule(status=503, times=2, body=b"<html>"),
        Rule("half", cut=20, times=2),
        Rule("none", cut=0, times=2),
    ],
    ids=["429", "500", "503", "cut in the body", "cut before it"],
)
def test_what_may_get_better_is_asked_again(rule, pauses):
    with scripted(rule, Rule("fine")) as (client, server):
        assert client.chat(HELLO).text == "fine"
    assert len(server.requests) == 3
    assert len(pauses) == 2
    assert 0.25 <= pauses[0] <= 0.5 <= pauses[1] <= 1


def test_retries_end(pauses):
    with scripted(Rule("busy", status=429), retries=2) as (client, server):
        refused(client, r"^any at http.*: status 429: busy; after 3 attempts$")
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_not_asked_again(status, pauses):
    with scripted(Rule("no such model", status=status)) as (client, server):
        error = refused(client, f"status {status}: no such model$")
    assert error.status == status
    assert len(server.requests) == 1
    assert pauses == []


def test_the_server_says_how_long_to_wait(pauses):
    soon = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=40), usegmt=True)
    rules = [
        Rule(status=429, times=1, headers={"Retry-After": "7"}),
        Rule(status=503, times=1, headers={"Retry-After": soon}),
        Rule(status=429, times=1, headers={"Retry-After": "soon"}),
        Rule("fine"),
    ]
    with scripted(*rules) as (client, _):
        assert client.chat(HELLO).text == "fine"
    assert pauses[0] == 7
    assert 10 < pauses[1] <= 40
    assert 1 <= pauses[2] <= 2  # its own


def test_a_server_that_asks_for_hours_is_not_waited_for(pauses):
    with scripted(Rule("quota", status=429, headers={"Retry-After": "7200"})) as (client, server):
        refused(client, "quota; it asks to wait 7200 s, more than 60 s")
    assert len(server.requests) == 1


@pytest.mark.parametrize("value", ["", "soon", "nan", "Mon, 99 Nov"])
def test_a_delay_that_says_nothing_is_none(value):
    assert asked_delay(value) is None


def test_a_date_that_is_over_means_now():
    assert asked_delay("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert asked_delay("-3") == 0


def test_own_delays_are_bounded():
    assert max(own_delay(attempt) for attempt in range(2000)) <= 8


@pytest.mark.parametrize(
    "rule",
    [Rule("late", delay_s=60), Rule("bit by bit", trickle_s=0.1)],
    ids=["nothing comes", "a byte now and then"],
)
def test_a_reply_has_one_deadline(rule):
    with scripted(rule, Rule("other"), timeout_s=0.5) as (client, server):
        begun = time.monotonic()
        refused(client, r"no reply within 0\.5 s$")
        assert time.monotonic() - begun < 5  # without it, a minute
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "expected a reply in JSON, got ''"),
        (b"<html>busy</html>", "expected a reply in JSON, got '<html>busy</html>'"),
        (b"[" * 100_000, "expected a reply in JSON"),
        (b"[]", "expected choices with a message"),
        (b"{}", "expected choices with a message"),
        (b'{"choices": []}', "expected choices with a message"),
        (b'{"choices": [{"message": null}]}', "expected choices with a message"),
        (b'{"choices": [{"message": {"content": 3}}]}', "expected choices with a message"),
        (b'{"choices": {"0": 1}}', "expected choices with a message"),
        (b'{"error": {"message": "out of credit"}}', "out of credit"),
        (b'"' + b"x" * 5_000_000 + b'"', "its reply has more than 4194304 bytes"),
    ],
)
def test_a_reply_that_is_none_is_refused(body, message):
    with scripted(Rule(body=body)) as (client, server):
        error = refused(client, message)
    assert len(str(error)) < 500
    assert len(server.requests) == 1


@pytest.mark.parametrize("content", ["null", "[]", '""'])
def test_a_model_may_say_nothing(content):
    body = b'{"choices": [{"message": {"content": %s}}]}' % content.encode()
    with scripted(Rule(body=body)) as (client, _):
        assert client.chat(HELLO)[:4] == ("", None, None, None)


def test_text_in_parts_is_joined():
    parts = b'[{"type": "text", "text": "go "}, {"type": "image"}, {"text": "left"}]'
    with scripted(Rule(body=b'{"choices": [{"message": {"content": %s}}]}' % parts)) as (client, _):
        assert client.chat(HELLO).text == "go left"


@pytest.mark.parametrize("usage", [("many", 1), (-1, 1), (True, 1), (1.5, 2), (10**300, 1)])
def test_counts_that_are_none_are_left_out(usage):
    with scripted(Rule("hi", usage=usage)) as (client, _):
        assert client.chat(HELLO).prompt_tokens is None
        assert client.used == 0


def test_redirects_are_refused():
    with ScriptedServer([Rule("elsewhere")]) as other:
        to = {"Location": f"{other.base_url}/chat/completions"}
        for status in (301, 302, 307, 308):
            with scripted(Rule(status=status, headers=to)) as (client, _):
                refused(client, f"status {status}: redirects are not")
    assert other.requests == []


def test_once_the_budget_is_used_nothing_is_asked():
    with scripted(Rule("hi", usage=(60, 10)), token_budget=100) as (client, server):
        client.chat(HELLO)
        client.chat(HELLO)
        with pytest.raises(BudgetError, match=r"budget of 100 tokens is used up \(140 tokens used"):
            client.chat(HELLO)
    assert len(server.requests) == 2


def test_a_budget_needs_a_server_that_counts():
    with scripted(Rule("hi", usage=None), token_budget=100) as (client, _):
        error = refused(client, "have no usage, which token_budget needs")
    assert error.answer.text == "hi"


@pytest.mark.parametrize("choices", ["[]", '[{"message": null}]', "null"])
def test_tokens_of_a_reply_that_is_none_count_all_the_same(choices):
    usage = '{"prompt_tokens": 60, "completion_tokens": 50}'
    body = f'{{"choices": {choices}, "usage": {usage}}}'.encode()
    with scripted(Rule(body=body), token_budget=100) as (client, _):
        error = refused(client, "expected choices with a message")
        assert (error.answer.tokens, client.used) == (110, 110)
        assert error.answer.whole["reply"]["usage"]["prompt_tokens"] == 60
        with pytest.raises(BudgetError, match="is used up"):
            client.chat(HELLO)


@pytest.mark.parametrize(
    "rule",
    [
        Rule("you sent", status=401, echoes_key=True),
        Rule("you sent", status=500, echoes_key=True),
        # Where the quoted text ends, half of the key would be left.
        Rule("x" * 280, status=401, echoes_key=True),
        Rule(body=f"{'x' * 180} {KEY}".encode()),
        Rule(body=f'{{"error": "{KEY}"}}'.encode()),
    ],
)
def test_a_key_is_in_no_error(rule, pauses):
    with scripted(rule) as (client, _):
        error = refused(client, "any at http")
    said = f"{error!r} {error} {error.__cause__} {error.__context__}"
    assert "sk-se" not in said
    assert KEY not in repr(client)


@pytest.mark.parametrize("escaped", [KEY, KEY.replace("/", "\\/"), KEY.replace("s", "\\u0073")])
def test_a_key_is_in_no_answer(escaped):
    body = '{"choices": [{"message": {"content": "your key is KEY."}}]}'.replace("KEY", escaped)
    with scripted(Rule(body=body.encode())) as (client, _):
        assert client.chat(HELLO).text == "your key is (api_key)."


@pytest.mark.parametrize("key", ["1", "a", '"', "EMPTY", "ollama"])
def test_a_short_key_is_sent_and_corrupts_no_reply(key):
    said = f"Action: 1, as ollama would say; EMPTY or {{1: 'a'}} {key}"
    with scripted(Rule(said, usage=(11, 1)), api_key=key) as (client, server):
        answer = client.chat(HELLO)
        assert (answer.text, answer.tokens) == (said, 12)
        assert server.requests[0].authorization == f"Bearer {key}"


@pytest.mark.parametrize("key", ["", " ", "sk-se\ncret", "sk-secrét", 3, "sk se"])
def test_a_key_that_cannot_be_sent_is_refused_unseen(key):
    with pytest.raises(ValueError, match="api_key: expected printable ASCII") as raised:
        LlmClient("any", api_key=key)
    assert "sk" not in str(raised.value)


def test_a_newline_after_a_key_is_none_of_it():
    with scripted(Rule("hi"), api_key=f"{KEY}\n") as (client, server):
        client.chat(HELLO)
    assert server.requests[0].authorization == f"Bearer {KEY}"


@pytest.mark.parametrize("spelled", [str.upper, str.lower])
def test_proxies_are_not_asked_for_a_server_on_this_machine(spelled, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "socks_proxy"):
        monkeypatch.setenv(spelled(name), "http://127.0.0.1:9")  # where nothing answers
    with scripted(Rule("hi"), retries=0) as (client, _):
        assert client.chat(HELLO).text == "hi"


def test_proxies_are_asked_for_a_server_elsewhere(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with LlmClient("any", base_url="http://llm.invalid/v1", retries=0, timeout_s=5) as client:
        refused(client, "cannot be reached: connection refused")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": ""}, "model: expected the name of a model, got ''"),
        ({"provider": "skynet"}, "provider: expected one of anthropic, gemini, ollama, openai"),
        ({"base_url": "localhost:8000"}, "base_url: expected http://host:port/path"),
        ({"base_url": "http://[::1/v1"}, "base_url: .* got a malformed URL"),
        ({"base_url": "http://h/v1?key=1"}, "got a query or a fragment"),
        ({"base_url": "http://h/v 1"}, "base_url: expected"),
        ({"base_url": 8000}, "base_url: expected"),
        ({"timeout_s": 0}, "timeout_s: expected seconds above 0, got 0"),
        ({"timeout_s": float("inf")}, "timeout_s: expected seconds"),
        ({"retries": -1}, "retries: expected a whole number of at least 0, got -1"),
        ({"retries": True}, "retries: expected"),
        ({"token_budget": 0}, "token_budget: expected None or a whole number"),
        ({"max_tokens": 1.5}, "max_tokens: expected None or"),
        ({"temperature": -1}, "temperature: expected None or a number"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        LlmClient(**{"model": "any", **arguments})


def test_a_password_in_a_url_is_refused_unseen():
    with pytest.raises(
        ValueError, match="put a key into the environment variable named by api_key_env"
    ) as raised:
        LlmClient("any", base_url="http://me:hunter2@h/v1")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("provider", "url"),
    [
        ("openai", "https://api.openai.com/v1"),
        ("vllm", "http://localhost:8000/v1"),
    ],
)
def test_a_provider_has_a_url(provider, url):
    with LlmClient("any", provider=provider) as client:
        assert client.base_url == url


def test_a_client_that_is_closed_asks_nothing():
    with scripted(Rule("hi")) as (client, server):
        client.chat(HELLO)
        client.close()
        client.close()
        with pytest.raises(ClosedError, match="used after it was closed"):
            client.chat(HELLO)
    assert len(server.requests) == 1


def test_closing_ends_what_is_asked():
    failed = []

    def ask(client):
        try:
            client.chat(HELLO)
        except ClosedError as error:
            failed.append(error)

    with scripted(Rule("late", delay_s=60), timeout_s=60) as (client, server):
        thread = threading.Thread(target=ask, args=(client,))
        thread.start()
        while not server.requests:
            time.sleep(0.01)
        client.close()
        thread.join(10)
    assert "closed while it was used" in str(failed)


def test_a_client_can_be_used_where_a_loop_runs():
    async def ask(client):
        return client.chat(HELLO).text

    with scripted(Rule("hi")) as (client, _):
        assert asyncio.run(ask(client)) == "hi"


def test_threads_share_a_client():
    with scripted(Rule("hi", usage=(1, 1))) as (client, server):
        threads = [threading.Thread(target=client.chat, args=(HELLO,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert client.used == 16
    assert len(server.requests) == 8
