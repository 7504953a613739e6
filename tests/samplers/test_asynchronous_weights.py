"""Which agents' weights an asynchronous sampler can transfer, and which it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from asynchronous_parts import FOUR, asynchronous
from gymnasium.spaces import Discrete

from parllel import BatchSpec
from parllel.agents import NumpyHandler, RandomAgent
from parllel.buffers import NamedTuple
from parllel.cages import VectorizedCage
from parllel.samplers import AsynchronousSampler, BasicSampler
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.sampler_setup import SamplerSetup
from parllel_patterns import allocate_samples

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


class LearningAgent(CountingAgent):
    """An agent of a user: it learns `weights` and says nothing about models."""

    models = RandomAgent.__mro__[1].models  # that of Agent

    def __init__(self, weights=0.0):
        super().__init__(4)
        self.weights = weights

    def step(self, observation, **arguments):
        action, info = super().step(observation, **arguments)
        return action, NamedTuple(value=self.value(observation), draw=info.draw)

    def value(self, observation, **arguments):
        total = np.sum([np.sum(part) for part in self.parts()])
        return np.full(len(super().value(observation)), total, np.float32)

    def parts(self):
        return self.weights.values() if isinstance(self.weights, dict) else [self.weights]

    def state(self):
        return {**super().state(), "weights": self.weights}

    def load_state(self, state):
        super().load_state(state)
        self.weights = state["weights"]


class NamingAgent(LearningAgent):
    def models(self):
        return {"weights": self}


class Setup(SamplerSetup):
    agent_class = LearningAgent
    weights = 0.0

    def agent(self):
        return type(self).agent_class(type(self).weights)


def setup_of(cls, initial):
    class Chosen(Setup):
        agent_class = cls
        weights = initial

    return Chosen(2, FOUR)


class NothingKept(LearningAgent):
    def state(self):
        return {}

    def load_state(self, state):
        pass


@pytest.mark.parametrize("cls", [LearningAgent, NothingKept])
def test_an_agent_that_names_no_models_is_refused(cls):
    message = (
        rf"agent: {cls.__name__}\.models\(\): expected the names of what it learns in its state\(\), "
        r".* return \{\} if it learns nothing"
    )
    with pytest.raises(ValueError, match=message):
        asynchronous(setup_of(cls, 0.0), agent=cls())


def test_without_an_agent_to_follow_its_models_need_no_names():
    with asynchronous(setup_of(LearningAgent, 2.5)) as sampler:
        samples, _ = sampler.collect_batch(0)
        assert (np.asarray(samples.agent.agent_info.value) == 2.5).all()
        assert set(sampler.state()["agent"]) == {"generator", "weights"}


def build_random():
    cages = [VectorizedCage(FOUR, seeds=range(4))]
    handler = NumpyHandler(RandomAgent(Discrete(4), 3))
    samples = allocate_samples(cages, BatchSpec(2, 4), handler)
    return BasicSampler(BatchSpec(2, 4), cages, handler, samples)


def test_an_agent_that_learns_nothing_has_no_versions():
    drawn = []
    learner = RandomAgent(Discrete(4), 3)
    with AsynchronousSampler(build_random, agent=learner, start_method="fork") as sampler:
        for _ in range(3):
            samples, _ = sampler.collect_batch(0)
            drawn.append(np.array(samples.agent.action))
            assert sampler.publish() == 0
            assert sampler.stats["staleness"] == sampler.version_of_batch == 0
    expected = RandomAgent(Discrete(4), 3)
    np.testing.assert_array_equal(drawn, [expected.draw_noise(2, 4) for _ in range(3)])


@pytest.mark.parametrize(
    "values",
    [
        [np.float64(3), np.float64(0.5)],
        [1.5, 2.5, -1.0],
        [2, 3],
        [
            {"a": 1.0, "b": np.arange(3), "c": [1, 2]},
            {"a": 2.0, "b": np.arange(3) * 2, "c": [3, 9]},
        ],
    ],
    ids=["scalars", "floats", "integers", "a tree"],
)
def test_weights_may_be_arrays_and_numbers(values):
    agent = NamingAgent(values[0])
    first = values[0] if not isinstance(values[0], dict) else {**values[0], "a": 0.0}
    with asynchronous(setup_of(NamingAgent, first), agent=agent, max_staleness=0) as sampler:
        for version, weights in enumerate(values):
            agent.weights = weights
            assert sampler.publish() == version
            samples, _ = sampler.collect_batch(0)
            total = agent.value(np.zeros((1, 3)))
            assert (np.asarray(samples.agent.agent_info.value) == total).all()
            assert (sampler.version_of_batch, sampler.stats["staleness"]) == (version, 0)


class KindAgent(NamingAgent):
    """Say of what kind its weights are after they were loaded."""

    def load_state(self, state):
        super().load_state(state)
        assert [type(part) for part in self.parts()] == [float, bool, np.ndarray, list]
        assert type(self.weights["d"][0]) is int


def test_numbers_come_back_as_what_they_were():
    weights = {"a": 0.5, "b": True, "c": np.zeros(2), "d": [1, 2]}
    agent = KindAgent(weights)
    with asynchronous(setup_of(KindAgent, weights), agent=agent) as sampler:
        samples, _ = sampler.collect_batch(0)
        assert (np.asarray(samples.agent.agent_info.value) == 4.5).all()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("relu", r"state\(\)\['weights'\]: expected arrays and numbers, got 'relu'"),
        ({"a": {"b": object}}, r"weights.a.b: expected arrays and numbers, got <class 'object'>"),
        ({"a": np.array(["x"])}, r"weights.a: expected arrays and numbers"),
    ],
)
def test_what_is_no_number_is_refused(weights, message):
    class Odd(NamingAgent):
        pass

    with pytest.raises(ValueError, match=message.replace(r"state\(\)\['weights'\]", "weights")):
        asynchronous(setup_of(Odd, 0.0), agent=Odd(weights))


@pytest.mark.parametrize("later", [[1.0, 2.0], {"a": 1.0}, np.zeros(2), "text", None, 1j])
def test_weights_that_change_their_form_are_refused(later):
    agent = NamingAgent(1.5)
    with asynchronous(setup_of(NamingAgent, 1.5), agent=agent) as sampler:
        agent.weights = later
        with pytest.raises(
            ValueError,
            match=r"^NamingAgent: (weights: )?expected (the weights that|arrays and numbers)",
        ):
            sampler.publish()
        agent.weights = 2  # a number that is whole by chance
        assert sampler.publish() == 1
