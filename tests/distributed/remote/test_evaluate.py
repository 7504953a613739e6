from __future__ import annotations

import pytest
from playing import always

from parllel.distributed.remote import Agent, evaluate, make

WIN_BY_ONE = {"episodeSteps": 4, "tieRewardThreshold": 1}
COUNTS = """
n = 0

def agent(observation):
    global n
    n += 1
    return 1 if n <= 3 else 5  # a second episode would be invalid
"""


def test_rewards_of_each_episode_are_returned():
    assert evaluate("rps", ["rock", "paper"], WIN_BY_ONE, episodes=2) == [[-3, 3], [-3, 3]]
    failed = evaluate("rps", ["rock", always(9)], WIN_BY_ONE, statuses=True)
    assert failed == [{"rewards": [1, None], "statuses": ["DONE", "INVALID"]}]


def test_the_code_of_an_agent_is_executed_for_each_episode():
    ends = evaluate("rps", [COUNTS, "rock"], WIN_BY_ONE, episodes=3)
    assert ends == [[3, -3]] * 3


def test_an_agent_that_is_handed_in_plays_all_episodes():
    with make("rps", WIN_BY_ONE) as env, Agent(COUNTS, env) as agent:
        ends = evaluate("rps", [agent, "rock"], WIN_BY_ONE, episodes=2)
        assert ends == [[3, -3], [None, 1]]
        # It is not closed by that.
        assert agent.act({"step": 0})[0] == 5


def test_progress_is_reported_after_each_episode():
    seen = []
    evaluate(
        *("connectx", ["random", "random"]),
        episodes=3,
        on_episode=lambda env: seen.append((env.done, len(env.steps) > 7)),
    )
    assert seen == [(True, True)] * 3


def test_every_episode_goes_on_from_the_same_steps():
    with make("connectx", {"rows": 2, "columns": 4, "inarow": 3}) as env:
        for column in (0, 0, 1, 1):
            env.step([column, column])
        steps = env.steps
    ends = evaluate(
        *("connectx", [always(2), always(3)], {"rows": 2, "columns": 4, "inarow": 3}),
        episodes=2,
        steps=steps,
    )
    assert ends == [[1, -1], [1, -1]]


@pytest.mark.parametrize("episodes", [0, -1, 1.5, True])
def test_only_whole_numbers_of_episodes(episodes):
    with pytest.raises(ValueError, match="episodes: expected an int of at least 1"):
        evaluate("rps", ["rock", "rock"], episodes=episodes)
