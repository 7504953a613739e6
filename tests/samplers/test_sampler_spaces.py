"""Spaces that do not fit each other are refused before anything is sampled."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import pytest
from sampler_cages import grouped, synchronized, vectorized

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.cages import Cage, ProcessCage
from parllel.samplers import BasicSampler, CageColumns, EvalSampler
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel_patterns import allocate_eval_samples, allocate_samples

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

FIVE = partial(CountingEnv, action_space=gym.spaces.Discrete(5))
WIDE = partial(CountingEnv, layout="float64")
OTHERS = {
    "actions": (
        FIVE,
        r"cage 1 \(CountingEnv\): expected the spaces of cage 0 \(CountingEnv\), .*Discrete\(4\), "
        r"got .*Discrete\(5\)",
    ),
    "observations": (WIDE, r"expected the spaces of cage 0 .*float32\) and .*, got .*float64\)"),
}


def in_a_process(factories, *, seeds):
    (factory,), (seed,) = factories, seeds
    return ProcessCage(factory, seed=seed, start_method="fork")


MAKERS = {
    "vectorized": vectorized,
    "processes": in_a_process,
    "synchronized": synchronized(1),
    "groups": grouped(1),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_cages_of_different_spaces_are_refused_side_by_side(make, other):
    factory, message = other
    with make([CountingEnv], seeds=[0]) as first, make([factory], seeds=[1]) as second:
        with pytest.raises(ValueError, match=message):
            CageColumns([first, second], 2)
        handler = NumpyHandler(CountingAgent(4))
        with pytest.raises(ValueError, match=message):
            allocate_samples([first, second], BatchSpec(3, 2), handler)
        with pytest.raises(ValueError, match=message):
            allocate_eval_samples([first, second])


def test_cages_of_equal_spaces_stand_side_by_side_whatever_their_names():
    class Other(CountingEnv):
        pass

    with Cage(CountingEnv, seed=0) as first, Cage(Other, seed=1) as second:
        assert CageColumns([first, second], 2).columns == [slice(0, 1), slice(1, 2)]


class OfThree(CountingAgent):
    action_space = gym.spaces.Discrete(3)


REFUSED = r"CountingEnv: agent\.action: expected Discrete\(4\), OfThree draws from Discrete\(3\)"


def test_an_agent_with_other_actions_is_refused_before_anything_is_sampled():
    spec = BatchSpec(3, 2)
    with vectorized([CountingEnv] * 2, seeds=[0, 1]) as cage:
        fitting = NumpyHandler(CountingAgent(4))
        handler = NumpyHandler(OfThree(3))
        with pytest.raises(ValueError, match=REFUSED):
            allocate_samples([cage], spec, handler)
        samples = allocate_samples([cage], spec, fitting)
        with pytest.raises(ValueError, match=REFUSED):
            BasicSampler(spec, [cage], handler, samples)
        with pytest.raises(ValueError, match=REFUSED):
            EvalSampler([cage], handler, allocate_eval_samples([cage]), 2)


def test_an_example_of_an_action_out_of_range_is_refused():
    class FromOne(CountingAgent):
        def step(self, observation, **arguments):
            action, info = super().step(observation, **arguments)
            return action + 4, info

    with vectorized([CountingEnv], seeds=[0]) as cage:
        message = (
            r"CountingEnv: agent\.action: expected an action of Discrete\(4\), got [4-7] from the"
        )
        with pytest.raises(ValueError, match=message):
            allocate_samples([cage], BatchSpec(3, 1), NumpyHandler(FromOne(4)))
