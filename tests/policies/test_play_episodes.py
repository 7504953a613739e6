"""Episodes depend on their seeds alone."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from policy_runs import MAKE, B

from parllel.buffers import buffer_map
from parllel.cages import MultiAgentTrajInfo, TrajInfo
from parllel.errors import EpisodeTooLongError, notes_of
from parllel.policies import Policy, load_policy, play_episodes, policy_of
from parllel.policies.basic_policies import RandomPolicy

SEEDS = [3, 0, 11, 5, 5, 2, 8]


def cart():
    return gym.make("CartPole-v1", max_episode_steps=40)


def random_policy(make_env=cart):
    env = make_env()
    env.close()
    return RandomPolicy(env.action_space)


def numbers_of(episodes):
    return [
        (one.seed, one.traj.length, one.traj.return_, one.terminated, one.truncated)
        for one in episodes
    ]


def assert_same(found, expected):
    assert numbers_of(found) == numbers_of(expected)
    for one, other in zip(found, expected, strict=True):
        buffer_map(np.testing.assert_array_equal, one.actions, other.actions)


@pytest.mark.parametrize("kind", ["normalized", "recurrent", "several_agents", "random"])
@pytest.mark.few(2)
def test_episodes_do_not_depend_on_the_number_of_environments(trained, kind):
    make_env = cart if kind == "random" else MAKE[kind]
    play = partial(play_episodes, make_env=make_env, seeds=SEEDS, keep_actions=True)
    with random_policy() if kind == "random" else load_policy(trained(kind)) as policy:
        expected = play(policy, n_envs=1)
        for n_envs in (3, 16):
            assert_same(play(policy, n_envs=n_envs), expected)
        # Nor on what was played before, or on the numbers of the environments.
        assert_same(play(policy, seeds=SEEDS[2:], n_envs=2, first_env=B + 2), expected[2:])
    assert [one.seed for one in expected] == SEEDS
    assert len({one.traj.return_ for one in expected}) > 1


def test_episodes_are_those_of_a_plain_loop():
    env = gym.make("Pendulum-v1", max_episode_steps=9)
    policy = policy_of(lambda seen: seen[:1] * 3, env.observation_space, env.action_space)
    make_env = partial(gym.make, "Pendulum-v1", max_episode_steps=9)
    for one in play_episodes(policy, make_env, [4, 1], keep_actions=True):
        observation, _ = env.reset(seed=one.seed)
        return_, actions = 0.0, []
        for _ in range(9):
            actions.append(np.clip(observation[:1] * 3, -2, 2))
            observation, reward, *flags, _ = env.step(actions[-1])
            return_ += float(reward)
        np.testing.assert_array_equal(one.actions, actions)
        assert [one.terminated, one.truncated] == flags == [False, True]
        assert (one.traj.return_, one.traj.length) == (return_, 9)
    env.close()


def test_actions_are_not_kept_unless_asked_for():
    assert [one.actions for one in play_episodes(random_policy(), cart, [1])] == [None]


def test_no_seeds_make_no_environment():
    assert play_episodes(random_policy(), lambda: 1 / 0, []) == []


def test_records_of_episodes():
    make = MAKE["several_agents"]
    one, two = play_episodes(
        random_policy(make), make, [1, 2], traj_info=MultiAgentTrajInfo, n_envs=1
    )
    assert isinstance(one.traj, MultiAgentTrajInfo)
    assert one.traj is not two.traj
    (other,) = play_episodes(random_policy(), cart, [1], traj_info=partial(TrajInfo, discount=0.5))
    assert other.traj.discounted_return < 2 < other.traj.return_


def test_what_is_watched():
    seen = []

    def watch(seed, env):
        seen.append((seed, env.unwrapped.state))

    episodes = play_episodes(random_policy(), cart, [7, 8], n_envs=1, watch=watch)
    assert [seed for seed, _ in seen] == [
        one.seed for one in episodes for _ in range(one.traj.length)
    ]
    first = cart().reset(seed=7)[0]
    np.testing.assert_allclose(seen[0][1], first, rtol=1e-6)


def test_episodes_that_do_not_end():
    lengths = [one.traj.length for one in play_episodes(random_policy(), cart, [0, 1, 2])]
    longest = max(lengths)
    assert len(play_episodes(random_policy(), cart, [0, 1, 2], max_steps=longest)) == 3
    seed = lengths.index(longest)
    with pytest.raises(
        EpisodeTooLongError, match=f"the episode with seed {seed} did not end within {longest - 1}"
    ):
        play_episodes(random_policy(), cart, [0, 1, 2], max_steps=longest - 1)


class Failing(gym.Wrapper):
    """Fail in the reset or the step of one seed."""

    def __init__(self, env, method, seed):
        super().__init__(env)
        self.method, self.bad = method, seed

    def reset(self, *, seed=None, options=None):
        self.seed = seed
        self._fail("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self._fail("step")
        return super().step(action)

    def _fail(self, method):
        if (method, self.seed) == (self.method, self.bad):
            raise KeyError("broken")


@pytest.mark.parametrize("method", ["reset", "step"])
def test_an_environment_that_fails(method):
    made = []

    def make_env():
        made.append(Failing(cart(), method, 5))
        return made[-1]

    with pytest.raises(KeyError, match="broken") as caught:
        play_episodes(random_policy(), make_env, range(9), n_envs=3)
    assert notes_of(caught.value)[-1] == "in the episode of seed 5"
    assert f"during {method}" in notes_of(caught.value)[0]
    assert len(made) == 3


def test_a_policy_that_fails():
    policy = policy_of(lambda seen: 1 / 0)
    for seeds, said in (
        ([4], "in the episode of seed 4"),
        (range(3), "in the episodes of seed 0, 1, 2"),
    ):
        with pytest.raises(ZeroDivisionError) as caught:
            play_episodes(policy, cart, seeds)
        assert notes_of(caught.value) == [said]
    with pytest.raises(ZeroDivisionError) as caught:
        play_episodes(policy, cart, range(12))
    assert notes_of(caught.value)[0].endswith("0, 1, 2, 3, 4, 5, 6, 7 and 4 more")


def test_a_policy_of_other_spaces():
    wrong = policy_of("random", action_space=gym.spaces.Discrete(3))
    with pytest.raises(
        ValueError,
        match=r"policy: expected a policy for the action space Discrete\(2\) of CartPole-v1",
    ):
        play_episodes(wrong, cart, [0])


def test_wrong_arguments():
    policy = random_policy()
    for name in ("n_envs", "max_steps"):
        for wrong in (0, 1.5, True):
            with pytest.raises(ValueError, match=f"{name}: expected an int of at least 1, got"):
                play_episodes(policy, cart, [0], **{name: wrong})
    for wrong in (-1, 0.5, None, True):
        with pytest.raises(ValueError, match="seeds: expected ints of at least 0, got"):
            play_episodes(policy, cart, [0, wrong])
    with pytest.raises(ValueError, match=r"seeds: expected ints of at least 0, got 20$"):
        play_episodes(policy, cart, 20)
    with pytest.raises(TypeError, match="policy: expected a Policy, got 'noop'; policy_of creates"):
        play_episodes("noop", cart, [0])


def test_each_environment_is_another():
    env = cart()
    with pytest.raises(ValueError, match="environment 1: expected a new environment"):
        play_episodes(random_policy(), lambda: env, range(3))
    assert len(play_episodes(random_policy(), lambda: env, range(3), n_envs=1)) == 3


class Resets(Policy):
    """Note what it is told."""

    def __init__(self):
        self.told = []

    def act(self, observation, env_indices):
        return np.zeros(len(observation), int)

    def reset(self, env_indices=None, seeds=None):
        self.told += zip(env_indices, seeds, strict=True)


def test_policies_begin_each_episode_with_a_seed_of_their_own():
    policy = Resets()
    play_episodes(policy, cart, [4, 6, 4], n_envs=2)
    drawn = dict.fromkeys(seed for _, seed in policy.told)
    assert len(policy.told) == 3
    assert len(drawn) == 2  # the same for the same seed
    assert not {4, 6} & set(drawn)
