"""Policies, and the policies of runs, as agents of episodes."""

from __future__ import annotations

import numpy as np
import pytest
from agent_setup import context, file_agent
from gymnasium import spaces

from parllel.distributed.remote import Agent
from parllel.distributed.remote.policy_call import PolicyCall
from parllel.policies import Policy

SPACE = spaces.Box(-10, 10, (2,), np.float32)


class Counting(Policy):
    """Return how often an environment was asked since its reset, and the sum of what it shows."""

    observation_space = SPACE
    action_space = spaces.MultiDiscrete([1000, 1000])
    recurrent = True

    def __init__(self, *spaces):
        self.counts = {}

    def act(self, observation, env_indices):
        for number in env_indices:
            self.counts[number] = self.counts.get(number, 0) + 1
        counts = [self.counts[number] for number in env_indices]
        return np.stack([counts, observation.sum(1).astype(int)], 1)

    def reset(self, env_indices=None, seeds=None):
        for number in env_indices:
            self.counts[number] = 0


def seen(*values, step=1, **more):
    return {"observation": list(values), "step": step, "remainingOverageTime": 60, **more}


def test_a_policy_remembers_each_episode_by_its_number():
    with Agent(Counting(), context()) as agent:
        assert agent.kind == "policy"
        assert agent.act(seen(1, 2, step=0))[0] == [1, 3]
        assert agent.act(seen(1, 3))[0] == [2, 4]
        rows = [seen(0, 1, env_index=7), seen(0, 2, env_index=0), seen(0, 3, env_index=2**50)]
        assert agent.act_batch(rows)[0] == [[1, 1], [3, 2], [1, 3]]
        assert agent.act_batch(rows[::-1])[0] == [[2, 3], [4, 2], [2, 1]]
        assert agent.act(seen(0, 0, step=0, env_index=7))[0] == [1, 0]


def test_observations_that_are_none_fail_alone():
    with Agent(Counting(), context()) as agent:
        rows = [seen(1, 2), seen(1), {"step": 1}, seen(1, 2, env_index=-1), seen(2, 2)]
        actions, _ = agent.act_batch(rows)
    assert actions[0] == [1, 3]
    assert actions[4] == [1, 4]
    assert [action.status for action in actions[1:4]] == ["ERROR"] * 3
    assert "observation: expected" in actions[1].reason
    assert 'expected an object with "observation"' in actions[2].reason
    assert "env_index: expected an int of at least 0, got -1" in actions[3].reason


def test_the_episode_unused_for_longest_makes_room(monkeypatch):
    monkeypatch.setattr("parllel.distributed.remote.policy_call._MAX_EPISODES", 2)
    policy = Counting()
    call = PolicyCall(policy)
    for env_index, count in ((10, 1), (11, 1), (10, 2), (12, 1), (10, 3), (11, 1)):
        assert call([seen(0, 0, env_index=env_index)])[0][0] == count
    assert set(policy.counts) == {0, 1}


def test_a_file_may_define_a_policy(tmp_path):
    source = """
        import numpy as np
        from gymnasium import spaces
        from parllel.policies import Policy

        class Sum(Policy):
            observation_space = spaces.Box(-10, 10, (2,), np.float32)
            action_space = spaces.Discrete(100)
            def __init__(self, *spaces):
                pass
            def act(self, observation, env_indices):
                return observation.sum(1).astype(np.int64)
    """
    with file_agent(tmp_path, source) as agent:
        assert agent.act_batch([seen(1, 2), seen(3, 4)])[0] == [3, 7]
        assert not agent.recurrent


def test_a_policy_without_spaces_is_refused():
    class Spaceless(Counting):
        observation_space = None

    with pytest.raises(ValueError, match="Spaceless: expected a policy with an observation space"):
        Agent(Spaceless(), context())
