from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from asked_runtime import Counting, ask, runtime_of

from parllel.distributed.operators.workers.worker_agent import worker_agent_of
from parllel.policies import Policy, play_episodes
from parllel.policies.basic_policies import RandomPolicy

SPACES = gym.spaces
TREE = SPACES.Dict(a=SPACES.Discrete(3), b=SPACES.Box(-1, 1, (2,), np.float32))


class Remembering(Policy):
    """Choose by how many steps of the episode it has seen, and by its seed."""

    recurrent = True

    def __init__(self):
        self.n, self.shift, self.n_closed = {}, {}, 0

    def act(self, observation, env_indices):
        actions = []
        for i in env_indices:
            self.n[i] = self.n.get(i, 0) + 1
            actions.append((self.n[i] // 3 + self.shift[i]) % 2)
        return np.array(actions)

    def reset(self, env_indices=None, seeds=None):
        for i, seed in zip(env_indices, seeds, strict=True):
            self.n[i], self.shift[i] = 0, seed % 2

    def close(self):
        self.n_closed += 1


def played(make, policy, seeds):
    """Return return, length and actions of an operator's episodes."""
    runtime, _, _ = runtime_of(make(), policy)
    found = []
    for seed in seeds:
        ask(runtime, {"cmd": "reset", "seed": seed})
        actions, end = [], []
        while not end:
            reply, *end = ask(runtime, {"cmd": "step"})
            actions.append(reply["action"])
        found.append((end[0]["total_reward"], end[0]["episode_length"], actions))
    runtime.close()
    return found


@pytest.mark.parametrize(
    ("make", "make_policy"),
    [
        (lambda: gym.make("CartPole-v1"), lambda env: RandomPolicy(env.action_space)),
        (lambda: gym.make("CartPole-v1"), lambda env: Remembering()),
        (lambda: gym.make("Pendulum-v1"), lambda env: RandomPolicy(env.action_space)),
        (lambda: Counting([1.0] * 4, action_space=TREE), lambda env: RandomPolicy(TREE)),
    ],
)
def test_a_policy_plays_the_episodes_that_it_plays_in_process(make, make_policy):
    env = make()
    seeds = [3, 0, 3]
    expected = play_episodes(make_policy(env), make, seeds, n_envs=2, keep_actions=True)
    for (total, length, actions), episode in zip(
        played(make, make_policy(env), seeds), expected, strict=True
    ):
        assert (total, length) == (episode.traj.return_, episode.traj.length)
        for step, action in enumerate(actions):
            kept = episode.actions
            if isinstance(kept, dict):
                assert action["a"] == kept["a"][step]
                action, kept = action["b"], kept["b"]
            np.testing.assert_array_equal(np.asarray(action, kept.dtype), kept[step])
    env.close()


def test_a_policy_is_closed_with_its_worker():
    policy = Remembering()
    runtime, _, _ = runtime_of(agent=policy)
    runtime.close()
    assert policy.n_closed == 1


@pytest.mark.parametrize("thing", [None, 3, "random", Remembering, object()])
def test_what_cannot_decide_is_refused(thing):
    with pytest.raises(TypeError, match="agent: expected a WorkerAgent, a Policy or a function"):
        worker_agent_of(thing)
