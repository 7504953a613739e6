from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
from scripted import KEY, scripted

from parllel.distributed.operators.llm.llm_error import LlmError
from parllel.distributed.operators.llm.scripted_server import Rule
from parllel.distributed.operators.llm.text_agent import TextAgent
from parllel.distributed.operators.llm.unparsed import unparsed_action
from parllel.distributed.operators.workers.worker_agent import checked_decision

NAMES = ["left", "right", "up"]
SPACE = gym.spaces.Discrete(3)


class Walker(TextAgent):
    """Answers are names of actions."""

    def describe(self, observation, info):
        return f"You are at {observation}."

    def parse(self, text, info):
        return NAMES.index(text) if text in NAMES else None

    def prompt(self, observation, info):
        return f"Walk from {observation}."

    def correction(self, text, info):
        return f"{text} is no way."


def decided(rules, observations, **settings):
    """Return decisions, one for each observation, and the messages of each request."""
    with scripted(*rules) as (client, server):
        agent = Walker(client, settings)
        agent.bind(None, SPACE)
        agent.reset(seed=3)
        found = [checked_decision(agent.decide(one, {})) for one in observations]
    return found, [
        [(message["role"], message["content"]) for message in request.messages]
        for request in server.requests
    ]


def test_an_answer_becomes_an_action():
    (decision,), (messages,) = decided([Rule("right", usage=(30, 2))], [7])
    assert decision[:6] == (1, "right", 1, 32, 30, 2)
    assert decision[6:9] == (1, True, [{"content": "right", "finish_reason": "stop"}])
    assert messages == [("system", "Walk from 7."), ("user", "You are at 7.")]
    assert [(one["role"], one["content"]) for one in decision.prompts] == messages


def test_instructions_come_first():
    _, (messages,) = decided([Rule("right")], [7], instructions="Be brief.")
    assert messages[0] == ("system", "Be brief.\n\nWalk from 7.")


def test_the_last_turns_are_shown():
    rules = [Rule("left", times=1), Rule("up", times=1), Rule("right")]
    _, (*_, last) = decided(rules, [7, 6, 5], history=1)
    assert last == [
        ("system", "Walk from 7."),
        ("user", "You are at 6."),
        ("assistant", "up"),
        ("user", "You are at 5."),
    ]


def test_without_history_none_is_shown():
    _, (_, last) = decided([Rule("left")], [7, 6], history=0)
    assert last == [("system", "Walk from 7."), ("user", "You are at 6.")]


def test_an_answer_that_is_not_understood_is_corrected():
    rules = [Rule("flee", times=1, usage=(5, 1)), Rule("up", usage=(9, 1))]
    (decision,), (_, second) = decided(rules, [7])
    assert decision[:6] == (2, "flee\n---\nup", 2, 16, 14, 2)
    assert (decision.calls, decision.understood) == (2, True)
    assert [answer["content"] for answer in decision.answers] == ["flee", "up"]
    assert second[2:] == [("assistant", "flee"), ("user", "flee is no way.")]


def test_corrections_are_no_part_of_the_history():
    rules = [Rule("flee", times=1), Rule("up")]
    _, (_, _, third) = decided(rules, [7, 6])
    assert third[1:3] == [("user", "You are at 7."), ("assistant", "up")]


def test_what_is_played_instead_follows_from_the_seed_and_is_said():
    first, requests = decided([Rule("flee")], range(6), attempts=0)
    again, _ = decided([Rule("flee")], range(6), attempts=0)
    assert [one.action for one in first] == [one.action for one in again]
    assert len({int(one.action) for one in first}) > 1
    assert {one.parsed for one in first} == {None}
    assert {one.raw for one in first} == {"flee"}
    said = requests[1][-1][1]
    assert said == f"(Not understood; {first[0].action} was played.)\nYou are at 1."
    assert len(requests) == 6


def test_nothing_understood_may_be_an_error():
    with pytest.raises(LlmError, match="the answer names no action: 'flee'") as raised:
        decided([Rule("flee", usage=(5, 1))], [7], unparsed="error", attempts=1)
    spent = raised.value.decision
    assert (spent.action, spent.raw, spent.tokens) == (None, "flee\n---\nflee", 12)
    assert (spent.calls, spent.understood) == (2, False)


def test_what_was_answered_before_the_server_failed_is_not_lost():
    rules = [Rule("flee", times=1, usage=(5, 1)), Rule("no more", status=400)]
    with pytest.raises(LlmError, match="status 400: no more") as raised:
        decided(rules, [7])
    spent = raised.value.decision
    assert (spent.raw, spent.tokens, spent.calls, spent.understood) == ("flee", 6, 1, None)
    with pytest.raises(LlmError, match="status 400") as raised:
        decided(rules[1:], [7])
    assert raised.value.decision is None


TOOLS = [{"id": "c1", "type": "function", "function": {"name": "go", "arguments": '{"to": "up"}'}}]


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        (Rule(None, message={"tool_calls": TOOLS}), {"tool_calls": TOOLS, "finish_reason": "stop"}),
        (
            Rule(None, message={"refusal": "I can't help with that."}),
            {"refusal": "I can't help with that.", "finish_reason": "stop"},
        ),
        (
            Rule("", message={"reasoning_content": "up? Then"}, finish_reason="length"),
            {"reasoning_content": "up? Then", "finish_reason": "length"},
        ),
        (
            Rule("hm", message={"n": [None, {"a": 1 << 70}]}),
            {"content": "hm", "n": [None, {"a": str(1 << 70)}], "finish_reason": "stop"},
        ),
    ],
    ids=["tool calls", "refusal", "reasoning", "anything"],
)
def test_answers_without_text_are_kept_whole_and_not_understood(rule, answer):
    (decision,), _ = decided([rule], [7], attempts=1)
    assert (decision.understood, decision.parsed) == (False, None)
    assert decision.answers == [answer, answer]


def test_a_cut_answer_is_told_so_and_one_without_text_too():
    cut = Rule("up or", times=1, finish_reason="length")
    silent = Rule(None, times=1, message={"tool_calls": TOOLS})
    (decision,), (_, second, third) = decided([cut, silent, Rule("up")], [7])
    assert decision.parsed == 2
    assert second[2:] == [
        ("assistant", "up or"),
        (
            "user",
            "Your answer was cut at the limit of tokens. Give a shorter one. up or is no way.",
        ),
    ]
    # Some servers refuse messages without content.
    assert third[4:] == [
        ("assistant", "(no text)"),
        ("user", "Your answer had no text.  is no way."),
    ]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("up", None),  # it may have been "up is a wall"
        ("Action: up", None),
        ("Action: up\n\nI chose this bec", "Action: up"),
        ("Action: left\nNo.\n**Action:** up\nor", "**Action:** up"),
        ("<think>Action: up\nor", None),
        ("I could go up\nor", None),
    ],
)
def test_of_a_cut_answer_a_whole_labelled_line_counts(text, parsed):
    class Reader(Walker):
        def parse(self, text, info):
            return text or None

    with scripted(Rule(text, finish_reason="length")) as (client, _):
        agent = Reader(client, {"attempts": 0, "unparsed": "first"})
        agent.bind(None, SPACE)
        decision = agent.decide(7, {})
    assert (decision.parsed, decision.understood) == (parsed, parsed is not None)
    assert decision.raw == text


def test_a_very_long_message_is_kept_as_its_beginning_and_says_so():
    (decision,), _ = decided([Rule("up", message={"reasoning": "é" * 300_000})], [7])
    (answer,) = decision.answers
    assert decision.parsed == 2
    assert answer["kept"].startswith("the first 262,144 of 300,0")
    assert len(answer["json"]) == 262_144
    assert answer["finish_reason"] == "stop"


def test_a_key_is_in_no_part_of_what_is_kept():
    quoted = json.dumps({"key": KEY}).replace("/", "\\/")
    message = {"tool_calls": [{KEY: [quoted, f"Bearer {KEY}"]}], "reasoning": KEY}
    (decision,), _ = decided([Rule("up", message=message)], [7])
    assert KEY[:9] not in json.dumps(decision.answers)
    assert decision.answers[0]["reasoning"] == "(api_key)"


def test_what_no_record_can_hold_is_kept_as_text():
    deep = "[" * 200 + "]" * 200
    body = (
        '{"choices": [{"message": {"content": "up", "x": NaN, "y": "\\ud800", "z": ' + deep + "}}]}"
    )
    (decision,), _ = decided([Rule(body=body.encode())], [7])
    answer = decision.answers[0]
    assert (answer["x"], answer["y"]) == ("nan", "?")
    assert "(nested too deeply to be kept)" in json.dumps(answer["z"])


def test_a_new_episode_begins_anew():
    with scripted(Rule("flee", times=1), Rule("up")) as (client, server):
        agent = Walker(client, {"attempts": 0})
        agent.bind(None, SPACE)
        for start in (7, 5):
            agent.reset(seed=3)
            agent.decide(start, {})
    messages = [message["content"] for message in server.requests[1].messages]
    assert messages == ["Walk from 5.", "You are at 5."]


def test_tokens_that_one_answer_does_not_count_are_unknown():
    rules = [Rule("flee", times=1, usage=None), Rule("up", usage=(9, 1))]
    (decision,), _ = decided(rules, [7])
    assert decision[3:7] == (None, None, None, 2)


@pytest.mark.parametrize(
    ("rule", "space", "legal", "expected"),
    [
        ("first", SPACE, None, 0),
        ("first", SPACE, [2, 1], 2),
        ("noop", SPACE, None, 0),
        ("noop", SPACE, [2, 0], 0),
        ("noop", SPACE, [2, 1], 2),
        ("noop", None, [2, 1], 2),
        ("random", None, [2], 2),
        ("random", gym.spaces.Discrete(1, start=5), None, 5),
    ],
)
def test_each_rule_plays_a_legal_action(rule, space, legal, expected):
    assert unparsed_action(rule, space, legal, np.random.default_rng(0)) == expected


@pytest.mark.parametrize("rule", ["random", "first", "noop"])
def test_without_a_space_and_legal_actions_there_is_nothing_to_play(rule):
    with pytest.raises(LlmError, match="no action can be chosen without an action space"):
        unparsed_action(rule, None, None, None)
