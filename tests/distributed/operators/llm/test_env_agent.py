from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from scripted import scripted

from parllel.distributed.operators.llm.env_agent import EnvAgent
from parllel.distributed.operators.llm.scripted_server import Rule
from parllel.distributed.operators.workers.text_view import TextView
from parllel.distributed.operators.workers.worker_agent import checked_decision
from parllel.policies import env_named


def decided(answer, space, observation=0, info=None, view=None, **settings):
    """Return the decision of a model that answers this, and the messages that it was shown."""
    with scripted(Rule(answer)) as (client, server):
        agent = EnvAgent(client, {"attempts": 0, **settings}, view)
        agent.bind(spaces.Discrete(9), space)
        agent.reset(seed=0)
        decision = checked_decision(agent.decide(observation, info or {}))
    return decision, [message["content"] for message in server.requests[0].messages]


@pytest.mark.parametrize(
    ("answer", "space", "parsed"),
    [
        ("Action: 2", spaces.Discrete(3), 2),
        ("2", spaces.Discrete(3), 2),
        ("There are 2 walls, hence action 1.", spaces.Discrete(3), 1),
        ("**Action:** 2 (Move right)", spaces.Discrete(3), 2),
        ("Not action: 1\nAction: 2, as 1 is a wall", spaces.Discrete(3), 2),
        ("Action: 1, 2", spaces.Discrete(3), None),
        ("Action: 1 or 2", spaces.Discrete(3), None),
        ("Action: 1/2", spaces.Discrete(3), None),
        ("Action: 1.5", spaces.Discrete(3), None),
        ("Action: 12 (right)", spaces.Discrete(3), None),
        ("<think>Action: 1 (left)</think>Action: 2 (right)", spaces.Discrete(3), 2),
        ("Action: 3", spaces.Discrete(3), None),
        ("Action: 3", spaces.Discrete(3, start=3), 3),
        ("I don't know", spaces.Discrete(3), None),
        ("", spaces.Discrete(3), None),
        ("Action: [0.5, -0.25]", spaces.Box(-1, 1, (2,)), [0.5, -0.25]),
        ("Action: 0.5, -0.25", spaces.Box(-1, 1, (2,)), [0.5, -0.25]),
        ("Action: 0.5", spaces.Box(-1, 1, (1,)), [0.5]),
        ("Action: [0.5]", spaces.Box(-1, 1, (2,)), None),
        ("Action: [3, 0]", spaces.Box(-1, 1, (2,)), None),
        ("Action: [1, 2]", spaces.MultiDiscrete([2, 3]), [1, 2]),
        ("Action: [1, 3]", spaces.MultiDiscrete([2, 3]), None),
        (
            'Action: {"a": 1, "b": [0.5]}',
            spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 1, (1,))),
            {"a": 1, "b": [0.5]},
        ),
    ],
)
def test_answers_become_actions_of_the_space(answer, space, parsed):
    agent = EnvAgent(None, {})
    agent.bind(None, space)
    action = agent.parse(answer, {})
    assert (None if action is None else agent.shown_action(action)) == parsed


def test_without_an_answer_an_action_of_the_space_is_played():
    for space in (spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3])):
        decision, _ = decided("hm", space)
        assert space.contains(np.asarray(decision.action, space.dtype))
        assert decision.parsed is None


def test_names_from_settings_are_understood_and_shown():
    names = ["left", "down", "right", "up"]
    decision, (rules, _) = decided("I go right.", spaces.Discrete(4), action_names=names)
    assert decision.parsed == 2
    assert "Actions: left, down, right, up." in rules


def test_names_have_to_fit_the_actions():
    with pytest.raises(ValueError, match="action_names: expected 4 names, one per action, got"):
        decided("up", spaces.Discrete(4), action_names=["up"])


@pytest.mark.parametrize(
    "info", [{"legal_actions": [1, 3]}, {"action_mask": np.array([0, 1, 0, 1], np.int8)}]
)
def test_legal_actions_alone_are_shown_and_understood(info):
    decision, (_, shown) = decided("Action: 3", spaces.Discrete(4), info=info)
    assert decision.parsed == 3
    assert shown.endswith("\nLegal actions: 1, 3")
    decision, _ = decided("Action: 2", spaces.Discrete(4), info=info)
    assert decision.parsed is None
    assert decision.action in (1, 3)


def test_a_player_is_shown_the_text_of_its_game():
    info = {"player_id": "player_1", "text": "your move", "legal_actions": [4, 5]}
    decision, (rules, shown) = decided("Action: 5", None, [0, 1], info)
    assert decision.parsed == 5
    assert rules.startswith("You are player_1 in a game.")
    assert shown == "your move\nLegal actions: 4, 5"


def test_legal_actions_of_other_kinds_are_json():
    info = {"legal_actions": [[0, 1], [2, 2]]}
    assert decided("Action: [2, 2]", None, [0], info)[0].parsed == [2, 2]
    assert decided("Action: [1, 1]", None, [0], info)[0].parsed is None


def shown_of(env_id, **env_kwargs):
    """Return what a model is shown of an environment first."""
    view = TextView(env_named(env_id, env_kwargs), env_id, env_kwargs, prefers_text=True)
    env = view.make()
    with scripted(Rule("0")) as (client, server):
        agent = EnvAgent(client, {}, view)
        agent.bind(env.observation_space, env.action_space)
        agent.reset(0)
        agent.decide(*env.reset(seed=0))
    env.close()
    return [message["content"] for message in server.requests[0].messages]


def test_an_environment_is_shown_as_it_draws_itself():
    rules, shown = shown_of("FrozenLake-v1")
    assert shown == "[S]FFF\nFHFH\nFFFH\nHFFG"
    assert "- 2: Move right" in rules


def test_an_environment_that_draws_no_text_is_shown_by_its_numbers():
    rules, shown = shown_of("CartPole-v1")
    assert shown.startswith("observation[0]: 0.0")
    assert "An action is a whole number from 0 to 1." in rules


def test_a_mask_of_the_environment_is_used():
    _, shown = shown_of("Taxi-v4")
    env = gym.make("Taxi-v4")
    _, info = env.reset(seed=0)
    legal = ", ".join(str(i) for i in np.flatnonzero(info["action_mask"]))
    assert shown.endswith(f"Legal actions: {legal}")
