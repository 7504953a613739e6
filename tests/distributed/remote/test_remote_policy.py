from __future__ import annotations

import multiprocessing
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from served_policy import ServedPolicy, frequency_policy

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.cli import main
from parllel.distributed.remote import RemotePolicy, remote_policy
from parllel.policies import (
    LabelActions,
    OpponentEnv,
    Policy,
    PolicyAgent,
    play_episodes,
    policy_of,
)
from parllel.policies.basic_policies import FunctionPolicy
from parllel.samplers import BasicSampler
from parllel.testing import RockPaperScissorsEnv
from parllel.testing.dummy_envs import CountingEnv
from parllel_patterns import allocate_samples, build_cages

OBSERVATIONS = spaces.Dict(
    camera=spaces.Box(0, 255, (2, 3), np.uint8),
    joints=spaces.Tuple((spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Discrete(4))),
    mark=spaces.Box(-1, 1, (2,), np.float32),
)
ACTIONS = spaces.Dict(
    arm=spaces.Tuple((spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(5, start=2))),
    hand=spaces.MultiBinary(3),
)


class Recorded(Policy):
    """Keep what it sees, and answer with what its space draws."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space
        self.seen, self.answers = [], []
        action_space.seed(3)

    def act(self, observation, env_indices):
        drawn = [self.action_space.sample() for _ in env_indices]
        self.seen.append(observation)
        self.answers.append(drawn)
        arms = tuple(np.stack([one["arm"][i] for one in drawn]) for i in (0, 1))
        return {"arm": arms, "hand": np.stack([one["hand"] for one in drawn])}


def drawn(n):
    OBSERVATIONS.seed(1)
    rows = [OBSERVATIONS.sample() for _ in range(n)]
    return {
        "camera": np.stack([row["camera"] for row in rows]),
        "joints": tuple(np.stack([row["joints"][i] for row in rows]) for i in (0, 1)),
        "mark": np.stack([row["mark"] for row in rows]),
    }


def assert_equal(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        for name in expected:
            assert_equal(found[name], expected[name])
    elif isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        np.testing.assert_array_equal(found, expected, strict=True)


def test_numbers_pass_both_ways_unchanged_in_one_request():
    served, batch = ServedPolicy(Recorded(OBSERVATIONS, ACTIONS)), drawn(5)
    with served.serving() as url, RemotePolicy(url, OBSERVATIONS, ACTIONS) as policy:
        assert not policy.recurrent
        actions = policy.act(batch, [4, 0, 1, 7, 2])
        one = policy.act_one(
            {
                "camera": batch["camera"][0],
                "joints": (batch["joints"][0][0], 1),
                "mark": batch["mark"][0],
            },
            4,
        )
    assert [len(rows) for rows in served.rows] == [5, 1]
    assert_equal(served.policy.seen[0], batch)
    for i, answer in enumerate(served.policy.answers[0]):
        assert_equal({"arm": tuple(leaf[i] for leaf in actions["arm"])}, {"arm": answer["arm"]})
        np.testing.assert_array_equal(actions["hand"][i], answer["hand"], strict=True)
    assert one["arm"][1].shape == ()
    assert [row["env_index"] for row in served.rows[0]] == [4, 0, 1, 7, 2]
    # The second step of environment 4.
    assert served.rows[1][0]["step"] == 1


def test_what_is_too_much_for_one_request_is_sent_as_several(monkeypatch):
    served, batch = ServedPolicy(Recorded(OBSERVATIONS, ACTIONS)), drawn(9)
    with served.serving(max_body_bytes=1500) as url:
        for name, value, most in (("_MAX_BYTES", 1000, 8), ("_MAX_ITEMS", 60, 3)):
            served.asked.clear()
            served.policy.seen.clear()
            monkeypatch.setattr(remote_policy, name, value)
            with RemotePolicy(url, OBSERVATIONS, ACTIONS) as policy:
                policy.act(batch, range(9))
            assert len(served.rows) > 1
            assert max(len(rows) for rows in served.rows) <= most
            cameras = np.concatenate([seen["camera"] for seen in served.policy.seen])
            np.testing.assert_array_equal(cameras, batch["camera"])


def test_no_environments_need_no_request():
    served = ServedPolicy(Recorded(OBSERVATIONS, ACTIONS))
    with served.serving() as url, RemotePolicy(url, OBSERVATIONS, ACTIONS) as policy:
        nothing = policy.act(drawn(2) | {"camera": np.zeros((0, 2, 3), np.uint8)}, [])
    assert nothing["hand"].shape == (0, 3)
    assert served.rows == []


def test_steps_go_on_after_a_resume_where_nothing_is_remembered():
    served = ServedPolicy(Recorded(OBSERVATIONS, ACTIONS))
    with served.serving() as url:
        with RemotePolicy(url, OBSERVATIONS, ACTIONS) as policy:
            for _ in range(3):
                policy.act(drawn(2), [0, 1])
            policy.reset([1])
            state = policy.state()
        with RemotePolicy(url, OBSERVATIONS, ACTIONS) as policy:
            policy.load_state(state)
            policy.act(drawn(2), [0, 1])
            policy.reset()
            policy.act(drawn(2), [0, 1])
    assert [[row["step"] for row in rows] for rows in served.rows[-2:]] == [[3, 0], [0, 0]]


# ---------------------------------------------------------------------- in samplers


class Sums(Policy):
    """Act by the sum of what it sees."""

    def __init__(self):
        env = CountingEnv()
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def act(self, observation, env_indices):
        total = np.abs(observation.reshape(len(observation), -1).sum(1) * 1000)
        return total.astype(np.int64) % self.action_space.n


def sampled(policy, transforms=()):
    spec = BatchSpec(6, 3)
    cages = build_cages(CountingEnv, 3, seeds=Seeds(0))
    handler = NumpyHandler(PolicyAgent(policy))
    samples = allocate_samples(cages, spec, handler, transforms)
    with BasicSampler(spec, cages, handler, samples, batch_transforms=transforms) as sampler:
        sampler.collect_batch(0)
        sampler.collect_batch(0)
    return samples


def test_a_sampler_asks_once_for_each_row_and_gets_the_same_actions():
    served = ServedPolicy(Sums())
    expected = sampled(Sums())
    with served.serving() as url:
        policy = policy_of(url, served.policy.observation_space, served.policy.action_space)
        assert isinstance(policy, RemotePolicy)
        found = sampled(policy)
    np.testing.assert_array_equal(found.agent.action, expected.agent.action)
    assert [len(rows) for rows in served.rows] == [1] + [3] * 12  # the first is an example


def test_an_expert_labels_a_batch_in_one_request():
    served = ServedPolicy(Sums())
    with served.serving() as url:
        spaces_of = served.policy.observation_space, served.policy.action_space
        with RemotePolicy(url, *spaces_of) as expert:
            samples = sampled(policy_of("random", *spaces_of, seed=0), [LabelActions(expert)])
    assert [len(rows) for rows in served.rows] == [18, 18]
    expected = Sums().act(np.asarray(samples.env.observation).reshape(18, -1), range(18))
    np.testing.assert_array_equal(np.asarray(samples.agent.expert_action).ravel(), expected)


def test_an_opponent_behind_a_url():
    served = ServedPolicy(frequency_policy())
    with served.serving() as url:
        env = OpponentEnv(RockPaperScissorsEnv(), "red", {"blue": url})
        env.reset(seed=0)
        rewards = [env.step(0)[1] for _ in range(6)]
        env.close()
    # It plays paper against the rock that it has seen.
    assert rewards[2:] == [-1.0] * 4
    assert len(served.rows) == 6


def lean(seen):
    return int(seen[2] > 0)


def test_parllel_play_takes_a_url(capsys):
    with gym.make("CartPole-v1") as env:
        policy = FunctionPolicy(lean, env.observation_space, env.action_space)
    served = ServedPolicy(policy)
    with served.serving() as url:
        assert main(["play", url, "--env", "CartPole-v1", "--seeds", "0-2"]) == 0
    episodes = play_episodes(policy, partial(gym.make, "CartPole-v1"), range(3))
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == [
        f"seed {one.seed}: return {one.traj.return_:.2f} in {one.traj.length} steps"
        for one in episodes
    ]


def act_once(policy, seen, pipe):
    pipe.send(policy.act(seen, range(len(seen))))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_connections_of_its_own():
    served = ServedPolicy(Sums())
    seen = np.arange(6, dtype=np.float32).reshape(2, 3)
    with served.serving() as url:
        policy = RemotePolicy(url, served.policy.observation_space, served.policy.action_space)
        expected = policy.act(seen, [0, 1])
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(
            target=act_once, args=(policy, seen, theirs)
        )
        child.start()
        assert ours.poll(30)
        np.testing.assert_array_equal(ours.recv(), expected)
        child.join(30)
        np.testing.assert_array_equal(policy.act(seen, [0, 1]), expected)
        policy.close()
        ours.close()
        theirs.close()
