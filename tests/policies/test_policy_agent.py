from __future__ import annotations

import numpy as np
import pytest
from counting_policies import with_policy
from gymnasium import spaces

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.cages import VectorizedCage
from parllel.policies import Policy, PolicyAgent
from parllel.samplers import BasicSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_policies import FrequencyPolicy
from parllel.testing.sampler_contract import ENVIRONMENTS
from parllel.testing.sampler_setup import SamplerSetup, make_sampler
from parllel_patterns import allocate_samples

ACTIONS = spaces.Dict(
    arm=spaces.Tuple((spaces.Box(-1, 1, (2,), np.float64), spaces.Discrete(5))),
    hand=spaces.MultiBinary(3),
)


class Remembering(Policy):
    """Keep what it is given, and act with what its space draws."""

    def __init__(self, observation_space=None):
        self.observation_space = observation_space
        self.seen = []

    def act(self, observation, env_indices):
        self.seen.append(observation)
        drawn = [ACTIONS.sample() for _ in env_indices]
        arms = tuple(np.stack([one["arm"][i] for one in drawn]) for i in (0, 1))
        return {"hand": np.stack([one["hand"] for one in drawn]), "arm": arms}


@pytest.mark.parametrize("known", [True, False])
def test_policies_see_and_give_trees_of_gymnasium(known):
    space = CountingEnv(layout="dict").observation_space
    policy = Remembering(space if known else None)
    cage = VectorizedCage(
        [lambda: CountingEnv(layout="dict", action_space=ACTIONS)] * 2, seeds=[0, 1]
    )
    spec = BatchSpec(3, 2)
    handler = NumpyHandler(PolicyAgent(policy))
    samples = allocate_samples([cage], spec, handler)
    with BasicSampler(spec, [cage], handler, samples) as sampler:
        sampler.collect_batch(0)
    for seen in policy.seen:
        assert type(seen) is dict
        assert type(seen["clock"]) is tuple
        if known:
            assert list(seen) == list(space)
            assert seen["clock"][0].dtype == np.int64
    # The one before is the example of one cell.
    assert [len(seen["mark"]) for seen in policy.seen] == [1, 2, 2, 2]
    assert samples.agent.action.arm._0.shape == (3, 2, 2)
    assert np.asarray(samples.agent.action.hand).any()


def test_observations_of_other_spaces_are_refused():
    agent = PolicyAgent(Remembering(spaces.Dict(a=spaces.Discrete(2))))
    with pytest.raises(ValueError, match=r"expected the parts \['a'\] of Dict.*, got \['b'\]"):
        agent.step({"b": np.zeros(1)})
    with pytest.raises(ValueError, match="expected a tree of Dict"):
        agent.step(np.zeros(1))


def moves(agent, *groups, steps=6):
    """Return the moves [steps, 4] of columns that act group by group."""
    rows = []
    for _ in range(steps):
        row = np.zeros(4, int)
        for columns in groups:
            n = len(np.arange(4)[columns])
            row[columns], _ = agent.step(np.zeros((n, 6), np.float32), env_indices=columns)
        rows.append(row)
    return np.array(rows)


def test_draws_belong_to_columns():
    """It makes no difference in which order, or with which others, these act."""
    expected = moves(PolicyAgent(FrequencyPolicy(), seed=3), slice(0, 4))
    for groups in ([slice(2, 4), slice(0, 2)], [np.array([3, 1]), np.array([0]), slice(2, 3)]):
        found = moves(PolicyAgent(FrequencyPolicy(), seed=3), *groups)
        np.testing.assert_array_equal(found, expected)
    # Neither are two columns, two seeds, nor sampling and evaluation alike.
    assert len({tuple(column) for column in expected.T}) == 4
    assert (moves(PolicyAgent(FrequencyPolicy(), seed=4), slice(0, 4)) != expected).any()
    evaluated = PolicyAgent(FrequencyPolicy(), seed=3)
    evaluated.eval_mode()
    assert (moves(evaluated, slice(0, 4)) != expected).any()


@pytest.mark.parametrize("which", [slice(None), slice(1, 3), np.array([1, 2])])
def test_resets_are_for_some_columns_of_one_mode(which):
    policy = FrequencyPolicy(drawn=0.0)
    agent = PolicyAgent(policy)
    rock = np.tile(np.eye(3, dtype=np.float32)[0], (4, 2))

    def counted():
        agent.step(rock)
        return {
            int(number): int(sum(counts)) for number, counts in policy.state()["counts"].items()
        }

    agent.reset()  # before the first step there is nothing to forget
    agent.reset_one(which)
    assert counted() == dict.fromkeys(range(0, 8, 2), 1)
    agent.eval_mode()
    counted()
    agent.reset()
    counted()
    agent.sample_mode()
    agent.reset_one(which)
    forgot = set(range(4)[which]) if isinstance(which, slice) else set(which.tolist())
    assert counted() == {
        **{2 * b: 1 if b in forgot else 2 for b in range(4)},
        **{2 * b + 1: 1 for b in range(4)},
    }


def test_a_policy_that_remembers_needs_a_sampler_that_resets_it():
    setup = with_policy(SamplerSetup(3, ENVIRONMENTS))
    recurrent = PolicyAgent(FrequencyPolicy())
    parts = setup.build()
    with (
        pytest.raises(
            ValueError, match=r"cannot run a recurrent agent \(PolicyAgent\).* use RecurrentSampler"
        ),
        parts.cages[0],
    ):
        BasicSampler(parts.batch_spec, parts.cages, NumpyHandler(recurrent), parts.samples)
    for cage in parts.cages:
        cage.close()


def test_actions_of_another_space_are_refused():
    class Other(FrequencyPolicy):
        recurrent = False

    setup = with_policy(SamplerSetup(3, ENVIRONMENTS))
    parts = setup.build()
    with pytest.raises(
        ValueError, match=r"agent.action: expected Discrete\(4\), PolicyAgent draws"
    ):
        BasicSampler(
            parts.batch_spec,
            parts.cages,
            NumpyHandler(PolicyAgent(Other(action_space=spaces.Discrete(3)))),
            parts.samples,
        )
    for cage in parts.cages:
        cage.close()


def test_only_policies_are_taken():
    with pytest.raises(TypeError, match="expected a Policy, got 'random'; policy_of creates one"):
        PolicyAgent("random")


def test_closing_a_sampler_closes_the_policy():
    sampler = make_sampler(BasicSampler, with_policy(SamplerSetup(3, ENVIRONMENTS)))
    policy = sampler.handler.agent.policy
    sampler.close()
    assert policy.closed == 1
