"""Interfaces of OpenAI, Anthropic and Google: requests and replies as their references describe them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import KEY, refused

from parllel.distributed.operators import Experiment, OperatorConfig
from parllel.distributed.operators.llm import llm_client
from parllel.distributed.operators.llm.answer import Answer, read_answer
from parllel.distributed.operators.llm.llm_client import LlmClient
from parllel.distributed.operators.llm.llm_error import LlmError
from parllel.distributed.operators.llm.llm_settings import check_llm_settings, key_variable
from parllel.distributed.operators.llm.provider import PROVIDERS
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer

PROTOCOLS = ("openai", "anthropic", "gemini")
DIALOGUE = [
    {"role": "system", "content": "Play well."},
    {"role": "user", "content": "Where?"},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "Say it again."},
    {"role": "assistant", "content": "left"},
    {"role": "user", "content": "And now?"},
]


def asked(provider, *rules, **options):
    """Return an answer to the dialogue, and the request."""
    given = {"api_key": KEY, "timeout_s": 10.0, **options}
    with (
        ScriptedServer(rules, provider=provider) as server,
        LlmClient("any", base_url=server.base_url, provider=provider, **given) as client,
    ):
        return client.chat(DIALOGUE), server.requests[0]


@pytest.mark.parametrize("provider", PROTOCOLS)
def test_a_dialogue_with_each_provider(provider):
    rule = Rule("go left", contains="And now?", usage=(60, 7))
    answer, request = asked(provider, rule, max_tokens=9, temperature=0.5)
    assert answer[:3] == ("go left", 60, 7)
    assert not answer.is_cut
    assert request.authorization == (f"Bearer {KEY}" if provider == "openai" else KEY)
    assert request.messages[-1] == {"role": "user", "content": "And now?"}
    assert request.messages[0] == {"role": "system", "content": "Play well."}
    cut, _ = asked(provider, Rule("go", finish_reason="length"))
    assert cut.is_cut


def test_requests_have_the_form_of_each_provider():
    _, request = asked("anthropic", Rule("hi"), max_tokens=9, temperature=0.5)
    assert request.body == {
        "model": "any",
        "system": "Play well.",
        "max_tokens": 9,
        "temperature": 0.5,
        "messages": [
            {"role": "user", "content": "Where?\n\nSay it again."},
            {"role": "assistant", "content": "left"},
            {"role": "user", "content": "And now?"},
        ],
    }
    _, request = asked("gemini", Rule("hi"), max_tokens=9, temperature=0.5)
    assert request.body == {
        "systemInstruction": {"parts": [{"text": "Play well."}]},
        "generationConfig": {"maxOutputTokens": 9, "temperature": 0.5},
        "contents": [
            {"role": "user", "parts": [{"text": "Where?\n\nSay it again."}]},
            {"role": "model", "parts": [{"text": "left"}]},
            {"role": "user", "parts": [{"text": "And now?"}]},
        ],
    }
    _, request = asked("gemini", Rule("hi"), max_tokens=None)
    assert "generationConfig" not in request.body


ANTHROPIC = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "any",
    "content": [
        {"type": "thinking", "thinking": "left or right?", "signature": "abc"},
        {"type": "text", "text": "go "},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"at": [1, 2]}},
        {"type": "text", "text": "left"},
    ],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 100,
        "output_tokens": 7,
    },
}
GEMINI = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [{"text": "left or right?", "thought": True}, {"text": "go left"}],
            },
            "finishReason": "STOP",
            "index": 0,
        }
    ],
    "usageMetadata": {
        "promptTokenCount": 115,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 4,
        "totalTokenCount": 122,
    },
    "modelVersion": "any",
}


def read(provider, reply):
    return read_answer(json.dumps(reply).encode(), protocol=PROVIDERS[provider].protocol)


@pytest.mark.parametrize(("provider", "reply"), [("anthropic", ANTHROPIC), ("gemini", GEMINI)])
def test_thoughts_and_tool_calls_are_kept_and_are_no_answer(provider, reply):
    answer = read(provider, reply)
    assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == ("go left", 115, 7)
    assert "left or right?" in json.dumps(dict(answer.whole))
    assert answer.whole["finish_reason"] == answer.reason


@pytest.mark.parametrize(
    ("provider", "reply", "reason"),
    [
        ("anthropic", {**ANTHROPIC, "content": [], "stop_reason": "refusal"}, "refusal"),
        ("gemini", {**GEMINI, "candidates": [{"finishReason": "SAFETY"}]}, "SAFETY"),
        (
            "gemini",
            {
                "promptFeedback": {"blockReason": "OTHER"},
                "usageMetadata": {"promptTokenCount": 115},
            },
            "OTHER",
        ),
    ],
)
def test_a_refusal_is_an_answer_without_text(provider, reply, reason):
    answer = read(provider, reply)
    assert (answer.text, answer.reason, answer.prompt_tokens) == ("", reason, 115)
    assert answer.tokens is not None


@pytest.mark.parametrize(
    ("provider", "body", "said"),
    [
        ("anthropic", {"type": "error", "error": {"type": "o", "message": "Overloaded"}}, 529),
        ("gemini", {"error": {"code": 503, "message": "Overloaded", "status": "BUSY"}}, 503),
    ],
)
def test_errors_are_quoted(provider, body, said, monkeypatch):
    monkeypatch.setattr(llm_client.time, "sleep", lambda seconds: None)
    rule = Rule(status=said, body=json.dumps(body).encode())
    with (
        ScriptedServer([rule], provider=provider) as server,
        LlmClient("any", base_url=server.base_url, provider=provider, retries=1) as client,
    ):
        refused(client, f"status {said}: Overloaded; after 2 attempts$")
        assert len(server.requests) == 2


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("content", "type", "text", "parts", "candidates", "promptFeedback"),
                    *(
                        "blockReason",
                        "usage",
                        "usageMetadata",
                        "input_tokens",
                        "choices",
                        "message",
                    ),
                    *("promptTokenCount", "thoughtsTokenCount", "stop_reason", "finishReason"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(VALUES, st.sampled_from(PROTOCOLS))
def test_any_reply_is_an_answer_or_an_error(reply, provider):
    try:
        answer = read(provider, reply)
    except LlmError as error:
        answer = error.answer or Answer("")
    assert isinstance(answer.text, str)
    assert answer.tokens is None or answer.tokens >= 0
    json.dumps(dict(answer.whole), allow_nan=False)


def test_anthropic_needs_a_limit():
    settings = {"model": "any", "provider": "anthropic", "max_tokens": None}
    with pytest.raises(ValueError, match="max_tokens: anthropic needs a number, got None"):
        check_llm_settings(settings)
    with pytest.raises(ValueError, match="max_tokens: anthropic needs a number, got None"):
        LlmClient("any", provider="anthropic", max_tokens=None)
    check_llm_settings({"model": "any", "provider": "anthropic"})
    check_llm_settings({**settings, "provider": "gemini"})


def test_keys_are_those_of_the_provider():
    for provider, variable in (("anthropic", "ANTHROPIC_API_KEY"), ("gemini", "GEMINI_API_KEY")):
        settings = {"model": "any", "provider": provider}
        assert key_variable(settings) == variable
        assert key_variable({**settings, "base_url": "http://localhost:1/v1"}) is None


def test_a_name_of_a_model_cannot_leave_its_place_in_the_url():
    with LlmClient("a/../b?c", provider="gemini", base_url="http://127.0.0.1:9/v1beta") as client:
        assert "a%2F..%2Fb%3Fc" in PROVIDERS["gemini"].protocol.path(client.model)


@pytest.mark.parametrize("provider", PROTOCOLS)
def test_an_operator_plays_with_each_provider(provider, tmp_path):
    with ScriptedServer(provider=provider) as server:
        settings = {"model": "any", "provider": provider, "base_url": server.base_url}
        operator = OperatorConfig("llm", "model", "FrozenLake-v1", settings=settings, max_steps=5)
        result = Experiment("lake", [operator], seeds=range(2)).run(base=tmp_path)
    (found,) = result.groups[0].operators
    assert found.failed == 0
    assert found.total_tokens > 0
    assert len(server.requests) >= 2


def test_a_server_of_an_unknown_provider():
    with pytest.raises(ValueError, match="provider: expected one of openai, anthropic, gemini"):
        ScriptedServer(provider="vllm")
