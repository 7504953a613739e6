from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from scripted import scripted

from parllel.operators.llm.llm_error import LlmError
from parllel.operators.llm.scripted_server import Rule
from parllel.operators.llm.text_agent import TextAgent
from parllel.operators.llm.unparsed import unparsed_action
from parllel.operators.worker_agent import checked_decision

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
    assert decision == (1, "right", 1, 32, 30, 2)
    assert messages == [("system", "Walk from 7."), ("user", "You are at 7.")]


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
    assert decision == (2, "flee\n---\nup", 2, 16, 14, 2)
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
    with pytest.raises(LlmError, match="the answer names no action: 'flee'"):
        decided([Rule("flee")], [7], unparsed="error", attempts=1)


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
    assert decision[3:] == (None, None, None)


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
    with pytest.raises(LlmError, match="there is no action space to choose from"):
        unparsed_action(rule, None, None, None)
