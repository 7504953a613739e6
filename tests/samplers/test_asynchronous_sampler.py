from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from asynchronous_parts import (
    FOUR,
    MODULUS,
    ChecksumEnv,
    ChecksumSetup,
    GatedEnv,
    SwitchingChecksumSetup,
    WeightedAgent,
    WeightedSetup,
    asynchronous,
    build,
    row_with_checksum,
    switching,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from parllel.arrays.switching import SwitchingManagedMemoryArray
from parllel.buffers import allocate
from parllel.errors import ClosedError, RegistrationError, WrongStateError
from parllel.samplers import AsynchronousSampler, BasicSampler, Sampler
from parllel.samplers.batch_sides import sides_of
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_contract import DOUBLED, SHIFTED
from parllel.testing.sampler_setup import SamplerSetup
from parllel.testing.simulated_batches import simulate

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


# ---------------------------------------------------------------------- batches are whole


@pytest.mark.parametrize("setup", [ChecksumSetup, SwitchingChecksumSetup])
@pytest.mark.parametrize("n_batches", [1_500, pytest.param(10_000, marks=pytest.mark.soak)])
@pytest.mark.few(1)
def test_no_batch_is_torn(setup, n_batches):
    T, B = 4, 2
    setup = setup(T, (ChecksumEnv,) * B)
    with asynchronous(setup) as sampler:
        for number in range(n_batches):
            samples, _ = sampler.collect_batch(0)
            n = T * number + np.arange(T + 1)
            expected = np.repeat(row_with_checksum(n)[:, None], B, axis=1)
            observation = samples.env.observation[0 : T + 1]
            reward = np.repeat((n[1:] % MODULUS)[:, None], B, axis=1)
            for _ in range(2):  # the next batch is being made meanwhile
                assert np.array_equal(np.asarray(observation), expected), number
                assert np.array_equal(np.asarray(samples.env.reward), reward), number
    assert sampler.version_of_batch == 0


def test_a_batch_stays_until_the_next_call():
    setup = SamplerSetup(5, FOUR)
    expected = simulate(setup, 6)
    with asynchronous(setup) as sampler:
        for number in range(6):
            samples, _ = sampler.collect_batch(0)
            if number == 5:  # comes back when the next batch has been made, which it drops
                sampler.load_state(sampler.state())
            found = np.asarray(samples.env.observation)
            np.testing.assert_array_equal(found, expected[number].fields["env.observation"][:5])


class ReturnsAnother(Sampler):
    """A sampler of a user: it has two buffers, and none that it calls `samples`."""

    def __init__(self, setup):
        self.inner = [build(setup), build(setup)]
        self.asked = []

    def collect_batch(self, elapsed_steps):
        self.asked.append(elapsed_steps)
        return self.inner[len(self.asked) % 2].collect_batch(elapsed_steps)

    @property
    def stats(self):
        return {"asked": list(self.asked)}

    def close(self):
        for sampler in self.inner:
            sampler.close()


def test_any_sampler_can_be_wrapped():
    setup = SamplerSetup(3, FOUR)
    expected = simulate(setup, 2)
    with AsynchronousSampler(partial(ReturnsAnother, setup), start_method="fork") as sampler:
        for number in range(4):
            samples, _ = sampler.collect_batch(10 * number)
            np.testing.assert_array_equal(
                np.asarray(samples.env.reward), expected[number // 2].fields["env.reward"]
            )
            # With the 12 steps of the batch before added, for batches that are made ahead.
            assert sampler.stats["asked"] == [0, 12, 22, 32][: number + 1]


def test_elapsed_steps_of_a_batch_ahead_count_the_one_before():
    class Asked(BasicSampler):
        asked = 0

        def collect_batch(self, elapsed_steps):
            self.asked = elapsed_steps
            return super().collect_batch(elapsed_steps)

        @property
        def stats(self):
            return {"asked": self.asked}

    with asynchronous(SamplerSetup(3, FOUR), Asked) as sampler:
        for number in range(4):
            sampler.collect_batch(12 * number)
            assert sampler.stats["asked"] == 12 * number


# ---------------------------------------------------------------------- overlap


def gated(folder, max_staleness):
    """Return a sampler whose second batch waits at a gate in its first step."""
    setup = SamplerSetup(3, (partial(GatedEnv, folder, 4, lengths=100),))
    return asynchronous(setup, max_staleness=max_staleness)


def test_the_next_batch_is_begun_before_this_one_was_learned_from(tmp_path):
    with gated(tmp_path, 1) as sampler:
        first, _ = sampler.collect_batch(0)
        seen = np.array(first.env.observation)
        until((tmp_path / "begun").exists)  # here learning goes on
        np.testing.assert_array_equal(np.asarray(first.env.observation), seen)
        (tmp_path / "open").touch()  # and has ended
        second, _ = sampler.collect_batch(3)
        assert np.asarray(second.env.observation)[0, 0, 2] == seen[-1, 0, 2] + 1


def test_without_staleness_nothing_is_begun_ahead(tmp_path):
    with gated(tmp_path, 0) as sampler:
        sampler.collect_batch(0)
        sampler.load_state(sampler.state())  # whatever it was told before is done now
        assert not (tmp_path / "begun").exists()
        (tmp_path / "open").touch()
        sampler.collect_batch(3)
        assert (tmp_path / "begun").exists()


# ---------------------------------------------------------------------- weights and their age


@settings(max_examples=40)
@given(
    st.integers(0, 3),
    st.lists(st.lists(st.booleans(), max_size=5), min_size=2, max_size=8),
    st.booleans(),
)
def test_staleness_is_known_and_bounded(bound, rounds, in_place):
    """In each round a batch is taken after weights were published, each time changed or not."""
    agent, changes = WeightedAgent(), 0
    setup = WeightedSetup(2, (partial(CountingEnv, lengths=1000),) * 2)
    inner = switching_weighted(setup) if in_place else setup
    with asynchronous(inner, agent=agent, max_staleness=bound) as sampler:
        for batches, publications in enumerate(rounds):
            for changed in publications:
                changes += changed
                agent.weights[:] = 100 + changes if changes else 0
                assert sampler.publish() == sampler.version == changes
            samples, _ = sampler.collect_batch(4 * batches)
            (value,) = set(np.asarray(samples.agent.agent_info.value[0:3]).ravel().tolist())
            version = int(value) - 100 if value else 0
            stats = sampler.stats
            assert 0 <= changes - version <= bound
            assert version == sampler.version_of_batch == stats["version_of_batch"]
            assert stats["staleness"] == changes - version
            assert stats["waited_s"] >= 0
            # The environment goes on from batch to batch, dropped ones included.
            step = np.asarray(samples.env.env_info.step)[0, 0]
            assert step == 2 * (batches + stats["dropped_batches"]) + 1
            sampler.ledger.check()
            counts = {"returned": batches + 1, "ahead": int(bound > 0)}
            assert sampler.ledger.counts().items() >= counts.items()


def switching_weighted(setup):
    from asynchronous_parts import SwitchingSetup

    class Both(SwitchingSetup):
        agent = WeightedSetup.agent

    return Both(setup.T, setup.factories)


def test_the_first_batch_is_made_with_the_weights_of_the_agent_that_is_trained():
    agent = WeightedAgent()
    agent.weights[:] = 7
    setup = WeightedSetup(2, FOUR)
    with asynchronous(setup, agent=agent) as sampler:
        agent.weights[:] = 8  # not published
        samples, _ = sampler.collect_batch(0)
        assert (np.asarray(samples.agent.agent_info.value) == 7).all()
        assert (sampler.version, sampler.stats["staleness"]) == (0, 0)


def test_the_episodes_of_dropped_batches_are_not_lost():
    setup = WeightedSetup(4, (partial(CountingEnv, lengths=4),))
    agent = WeightedAgent()
    with asynchronous(setup, agent=agent) as sampler:
        lengths = []
        for number in range(1, 5):
            _, trajs = sampler.collect_batch(0)
            lengths.append(len(trajs))
            for _ in range(2):
                agent.weights += number
                sampler.publish()
        assert lengths == [1, 2, 2, 2]
        assert sampler.stats["dropped_batches"] == 3


def test_noise_is_that_of_the_agent_that_samples():
    setup = WeightedSetup(3, FOUR, seed=3)
    agent = WeightedAgent(seed=99)
    with build(setup) as alone, asynchronous(setup, agent=agent) as sampler:
        for _ in range(3):
            expected, _ = alone.collect_batch(0)
            samples, _ = sampler.collect_batch(0)
            agent.draw_noise(3, 4)
            agent.weights += 1
            sampler.publish()
            np.testing.assert_array_equal(
                np.asarray(samples.agent.agent_info.draw),
                np.asarray(expected.agent.agent_info.draw),
            )


def test_there_must_be_an_agent_to_publish():
    with (
        asynchronous(SamplerSetup(2, FOUR)) as sampler,
        pytest.raises(WrongStateError, match="publish: there is no agent; pass agent="),
    ):
        sampler.publish()


def test_agents_of_another_shape_are_refused():
    agent = WeightedAgent()
    agent.weights = np.zeros(2)
    with (
        asynchronous(WeightedSetup(2, FOUR), agent=agent) as sampler,
        pytest.raises(
            ValueError,
            match=r"the weights of the agent that is trained, \[\('scale.all', \(2,\), .*got \[.*\(3",
        ),
    ):
        sampler.collect_batch(0)


def test_state_must_hold_what_models_name():
    class Forgetful(WeightedAgent):
        def state(self):
            return {}

    with pytest.raises(ValueError, match=r"an entry for each of models\(\), \['scale'\]"):
        asynchronous(WeightedSetup(2, FOUR), agent=Forgetful())


# ---------------------------------------------------------------------- state


def test_state_is_that_after_the_last_batch_whatever_is_made_ahead():
    setup = SamplerSetup(3, FOUR, step_transforms=(DOUBLED, SHIFTED), seed=4)
    with build(setup) as alone, asynchronous(setup) as sampler:
        assert sampler.state()["sampler"] == alone.state(environments=False)
        for _ in range(3):
            alone.collect_batch(0)
            sampler.collect_batch(0)
            assert sampler.state()["sampler"] == alone.state(environments=False)
            assert sampler.state()["agent"] == alone.handler.agent.state()
    assert sampler.state()["agent"] == alone.handler.agent.state()  # also when it is closed


def test_a_loaded_state_counts_from_the_next_batch_on():
    setup = switching(SamplerSetup(3, FOUR, step_transforms=(DOUBLED, SHIFTED), seed=4))
    expected = simulate(setup, 6)
    with asynchronous(setup) as sampler:
        for _ in range(2):
            sampler.collect_batch(0)
        state = sampler.state()
        for _ in range(2):
            sampler.collect_batch(0)
        # A fifth is being made, and is dropped.
        sampler.load_state(state)
        assert sampler.ledger.counts() == {"begun": 5, "returned": 4, "dropped": 1, "ahead": 0}
        assert sampler.stats["RecordingStepTransform/batches"] == 2
        samples, _ = sampler.collect_batch(0)
    # Statistics and noise are those of the third batch, observations go on.
    draw = np.asarray(samples.agent.agent_info.draw)
    np.testing.assert_array_equal(draw, expected[2].fields["agent.agent_info.draw"])
    batches = np.asarray(samples.agent.observation) - np.asarray(samples.agent.doubled)
    np.testing.assert_allclose(batches, 0.5 + 3.0 * 2)


# ---------------------------------------------------------------------- buffers that do not fit


class LocalSides(SamplerSetup):
    def _allocate(self, handler, transforms):
        samples = super()._allocate(handler, transforms)
        return allocate(samples, self.batch_spec, switching=True)


class Mixture(SamplerSetup):
    def _allocate(self, handler, transforms):
        samples = super()._allocate(handler, transforms)
        reward = SwitchingManagedMemoryArray(samples.env.reward.shape, np.float32)
        return samples._replace(env=samples.env._replace(reward=reward))


class Passive(Sampler):
    def __init__(self, samples):
        self.samples = samples

    def collect_batch(self, elapsed_steps):
        raise AssertionError

    def close(self):
        pass


def test_a_switching_buffer_must_be_in_managed_memory():
    with (
        asynchronous(LocalSides(2, FOUR)) as sampler,
        pytest.raises(RegistrationError, match=r'allocate it with storage={"[a-z._]*": "managed"}'),
    ):
        sampler.collect_batch(0)


def test_a_buffer_must_switch_as_a_whole():
    with (
        asynchronous(Mixture(2, FOUR)) as sampler,
        pytest.raises(
            ValueError, match="samples: expected arrays that all switch, or none; got a mixture"
        ),
    ):
        sampler.collect_batch(0)


def test_a_sampler_of_another_kind_cannot_follow_a_switching_buffer():
    samples = switching(SamplerSetup(2, FOUR)).build().samples
    with pytest.raises(ValueError, match="Passive: expected a subclass of BatchSampler"):
        sides_of(Passive(samples))


# ---------------------------------------------------------------------- arguments and the end


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="max_staleness: expected 0 or more, got -1"):
        AsynchronousSampler(list, max_staleness=-1)
    with pytest.raises(ValueError, match="timeout_s: expected a positive number of seconds, got 0"):
        AsynchronousSampler(list, timeout_s=0)
    with pytest.raises(ValueError, match="start_method: expected one of"):
        AsynchronousSampler(list, agent=WeightedAgent(), start_method="thread")


def test_nothing_can_be_asked_after_the_end():
    sampler = asynchronous(WeightedSetup(2, FOUR), agent=WeightedAgent())
    samples, _ = sampler.collect_batch(0)
    before = np.array(samples.env.observation)
    sampler.close()
    sampler.close()
    for call in (
        partial(sampler.collect_batch, 0),
        sampler.publish,
        partial(sampler.load_state, {}),
    ):
        with pytest.raises(ClosedError, match=r"sampling process: used after close\(\)"):
            call()
    np.testing.assert_array_equal(np.asarray(samples.env.observation), before)
    assert sampler.stats["staleness"] == 0


def test_a_sampler_that_was_never_used_can_be_closed():
    asynchronous(SamplerSetup(2, FOUR)).close()


def test_a_sampler_that_is_let_go_of_ends():
    sampler = asynchronous(SamplerSetup(2, FOUR))
    sampler.collect_batch(0)
    del sampler
