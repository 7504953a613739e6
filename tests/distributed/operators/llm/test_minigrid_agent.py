from __future__ import annotations

import gymnasium as gym
import minigrid  # noqa: F401 - registers its environments
import pytest
from gymnasium import spaces
from minigrid.core.actions import Actions
from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper
from scripted import scripted

from parllel.distributed.operators.llm.llm_error import LlmError
from parllel.distributed.operators.llm.minigrid_agent import MiniGridAgent
from parllel.distributed.operators.llm.minigrid_view import describe_view
from parllel.distributed.operators.llm.scripted_server import Rule

ENV_ID = "BabyAI-GoToRedBall-v0"


def decided(*rules, seed=3, env_id=ENV_ID, **settings):
    """Return the decision in the first view of an episode, the view, and the requests."""
    env = gym.make(env_id)
    observation, info = env.reset(seed=5)
    with scripted(*rules) as (client, server):
        agent = MiniGridAgent(client, settings)
        agent.bind(env.observation_space, env.action_space)
        agent.reset(seed)
        made = agent.decide(observation, info)
    env.close()
    return made, observation, server.requests


def test_a_model_is_shown_its_mission_what_it_sees_and_the_actions():
    made, observation, (request,) = decided(Rule("I see the ball, so I **go forward**."))
    assert (made.action, made.parsed) == (Actions.forward, "go forward")
    system, user = request.messages
    assert observation["mission"] in system["content"]
    view = describe_view(observation["image"], observation["direction"])
    assert user["content"] == f"Mission: {observation['mission']}\n{view}"
    for name in ("turn left", "turn right", "go forward", "pick up", "drop", "toggle", "done"):
        assert f"\n{name}: " in system["content"]


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("turn left", Actions.left),
        ("Action: right", Actions.right),
        ("I keep moving forward", Actions.forward),
        ("PICKUP", Actions.pickup),
        ("drop", Actions.drop),
        ("I toggle the door.", Actions.toggle),
        ("done!", Actions.done),
    ],
)
def test_names_lead_to_the_actions_of_minigrid(text, action):
    made, _, _ = decided(Rule(text), attempts=0, unparsed="error")
    assert made.action == action


def test_answers_that_name_no_single_action_are_corrected():
    made, _, requests = decided(Rule("left? right?", times=1), Rule("turn left"))
    assert (made.action, made.parsed) == (Actions.left, "turn left")
    assert "one of: turn left, turn right, go forward" in requests[1].messages[-1]["content"]


def test_the_rule_for_answers_without_an_action_is_that_of_the_settings():
    drawn = [decided(Rule("?"), attempts=0, seed=seed)[0] for seed in range(6)]
    assert {made.parsed for made in drawn} == {None}
    assert len({int(made.action) for made in drawn}) > 2
    assert decided(Rule("?"), attempts=0, seed=2)[0].action == drawn[2].action
    assert decided(Rule("?"), attempts=0, unparsed="first")[0].action == Actions.left
    assert decided(Rule("?"), attempts=0, unparsed="noop")[0].action == Actions.done
    with pytest.raises(LlmError, match="names no action: 'none of them'"):
        decided(Rule("none of them"), attempts=0, unparsed="error")


def test_environments_of_fewer_actions_have_fewer_names():
    env_id = "MiniGrid-Dynamic-Obstacles-5x5-v0"
    made, _, (request,) = decided(Rule("toggle"), env_id=env_id, attempts=0)
    assert made.parsed is None
    assert "toggle" not in request.messages[0]["content"]
    assert decided(Rule("go forward"), env_id=env_id)[0].action == Actions.forward


def bound_to(observation_space, action_space):
    with scripted() as (client, _):
        MiniGridAgent(client, {}).bind(observation_space, action_space)


def test_other_environments_are_refused():
    env = gym.make(ENV_ID)
    for space in (None, spaces.Box(0, 1, (4,)), ImgObsWrapper(env).observation_space):
        with pytest.raises(TypeError, match="expected observations of MiniGrid or BabyAI, with"):
            bound_to(space, env.action_space)
    for actions in (spaces.Discrete(8), spaces.Discrete(7, start=1), spaces.MultiBinary(7)):
        with pytest.raises(TypeError, match="expected MiniGrid's actions, Discrete"):
            bound_to(env.observation_space, actions)
    with pytest.raises(ValueError, match="remove wrappers that change it"):
        bound_to(FullyObsWrapper(env).observation_space, env.action_space)
    env.close()
