from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from parllel import BatchSpec
from parllel.agents import NumpyHandler, RandomAgent
from parllel.cages import Cage, VectorizedCage
from parllel.policies import LabelActions, Policy
from parllel.policies.basic_policies import FunctionPolicy
from parllel.samplers import BasicSampler, FullEpisodeSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_policies import FrequencyPolicy
from parllel.testing.transform_contract import BatchTransformContract
from parllel_patterns import allocate_samples

ACTIONS = spaces.Dict(
    arm=spaces.Tuple((spaces.Box(-9, 9, (2,), np.float64), spaces.Discrete(5))),
    hand=spaces.MultiBinary(3),
)


class Expert(Policy):
    """Answer with what it sees, and count how often it is asked."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    def act(self, observation, env_indices):
        self.asked.append((observation, list(env_indices)))
        return self.answer(observation)


def sums(observation):
    """Return an action for each observation, whatever its shape."""
    return 100 + np.asarray(observation).reshape(len(observation), -1).sum(1).astype(np.int64)


class TestLabelActions(BatchTransformContract):
    def make_transform(self):
        return LabelActions(Expert(sums))


def arms(observation):
    mark = np.asarray(observation["mark"]).reshape(len(observation["mark"]), -1)
    n = len(mark)
    return {
        "hand": np.ones((n, 3), np.int8),
        "arm": (np.repeat(mark[:, :1], 2, 1).astype(np.float64), np.arange(n) % 5),
    }


def test_a_batch_of_trees_is_labelled_in_one_request():
    def make_env():
        return CountingEnv(layout="dict", action_space=ACTIONS)

    expert, spec = Expert(arms), BatchSpec(5, 2)
    transform = LabelActions(expert)
    expert.observation_space = make_env().observation_space
    cage = VectorizedCage([make_env] * 2, seeds=[0, 1])
    handler = NumpyHandler(RandomAgent(ACTIONS, seed=0))
    samples = allocate_samples([cage], spec, handler, [transform])
    with BasicSampler(spec, [cage], handler, samples, batch_transforms=[transform]) as sampler:
        for _ in range(2):
            sampler.collect_batch(0)
    assert [numbers for _, numbers in expert.asked] == [list(range(10))] * 2
    seen = expert.asked[-1][0]
    # As gymnasium has them, whatever the buffer makes of them.
    assert list(seen) == list(expert.observation_space)
    assert type(seen["clock"]) is tuple
    label = samples.agent.expert_action
    mark = np.asarray(samples.env.observation.mark).reshape(10, -1)
    np.testing.assert_array_equal(np.asarray(label.arm._0).reshape(10, 2)[:, 0], mark[:, 0])
    np.testing.assert_array_equal(np.asarray(label.arm._1).ravel(), np.arange(10) % 5)
    assert label.arm._0.dtype == samples.agent.action.arm._0.dtype
    assert np.asarray(label.hand).all()


def test_steps_that_were_not_made_are_not_labelled():
    expert, spec = Expert(sums), BatchSpec(12, 2)
    transform = LabelActions(expert)
    cages = [
        Cage(lambda n=n: CountingEnv(n), index=i, reset_automatically=False)
        for i, n in enumerate((3, 5))
    ]
    handler = NumpyHandler(RandomAgent(CountingEnv().action_space, seed=0))
    samples = allocate_samples(cages, spec, handler, [transform])
    with FullEpisodeSampler(spec, cages, handler, samples, batch_transforms=[transform]) as sampler:
        batch, _ = sampler.collect_batch(0)
    valid = np.asarray(batch.env.valid)
    label = np.asarray(batch.agent.expert_action)
    assert 0 < valid.sum() < valid.size
    assert len(expert.asked[-1][0]) == valid.sum()
    assert (label[valid] >= 90).all()
    assert not label[~valid].any()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda seen: np.zeros((len(seen), 2), int), r"expected shape \[8\], .* got \[8, 2\]"),
        (lambda seen: np.zeros(1, int), r"expected shape \[8\], .* got \[1\]"),
        (lambda seen: {"x": 1}, r"expected shape \[8\], .* got \[\]"),
    ],
)
def test_actions_of_other_shapes_are_refused(answer, message):
    spec, transform = BatchSpec(4, 2), LabelActions(Expert(answer))
    cage = VectorizedCage([CountingEnv] * 2, seeds=[0, 1])
    handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=0))
    samples = allocate_samples([cage], spec, handler, [transform])
    with (
        BasicSampler(spec, [cage], handler, samples, batch_transforms=[transform]) as sampler,
        pytest.raises(ValueError, match=f"LabelActions: the expert action: {message}"),
    ):
        sampler.collect_batch(0)


def test_experts_that_cannot_label_a_batch_are_refused():
    with pytest.raises(TypeError, match=r"LabelActions: expert: expected a Policy, got 'http"):
        LabelActions("http://127.0.0.1:8081")
    with pytest.raises(ValueError, match="expected a policy without recurrent state"):
        LabelActions(FrequencyPolicy())
    assert LabelActions(FunctionPolicy(int)).reads == ("env.observation",)
