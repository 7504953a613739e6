"""Batches of fragments are those of the sampler that the fragments come from."""

from __future__ import annotations

import re
import threading
import time

import numpy as np
import pytest
from fragments import make_fragment
from producers import (
    SPEC,
    Called,
    Producer,
    make_agent,
    make_fragment_sampler,
    make_parts,
    trainer_samples,
)

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.buffers import Field, buffer_leaves, buffer_map
from parllel.cages import VectorizedCage
from parllel.distributed.rollouts import FragmentCutter, FragmentSampler, ReplayBuffer, WorkerStatus
from parllel.errors import ClosedError, WorkerTimeoutError
from parllel.samplers import RecurrentSampler
from parllel.testing.dummy_agents import RecurrentCountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel.torch import TorchHandler
from parllel.transforms import (
    EstimateAdvantage,
    FinalObservations,
    NormalizeAdvantage,
    NormalizeRewards,
    StepTransform,
)
from parllel_patterns import allocate_samples

T, B = SPEC.shape
OWN = {"env.valid", "env.first", "env.aborted", "env.version"}


def advantages():
    return [
        NormalizeRewards(0.98),
        EstimateAdvantage(0.98, 0.9, reward="env.normalized_reward"),
        NormalizeAdvantage(),
        FinalObservations(),
    ]


class Halve(StepTransform):
    """Show the agent half of what it observes."""

    reads = ("env.observation",)

    def fields(self, samples):
        like = samples.env.observation
        return {"agent.observation": Field(np.zeros(like.shape[2:], like.dtype), padding=1)}

    def transform_step(self, samples, t, columns):
        halves = np.asarray(samples.env.observation[t, columns]) / 2
        np.asarray(samples.agent.observation[t, columns])[...] = halves

    def transform_final(self, observation):
        return observation / 2


def rows(leaf):
    """Return an array with the row after the batch, if there is one."""
    return np.array(leaf[0 : len(leaf) + 1] if leaf.padding else leaf)


def copied(samples, leave_out=("env.next_observation",)):
    leaves = dict(buffer_leaves(samples))
    return {path: rows(leaf) for path, leaf in leaves.items() if path not in leave_out}


def assert_same(found, expected, but=()):
    for path, values in expected.items():
        if path not in but:
            np.testing.assert_array_equal(found[path], values, err_msg=path)


@pytest.mark.parametrize("step", [(), (Halve,)], ids=["raw", "transformed"])
def test_batches_are_those_of_the_sampler_that_the_fragments_come_from(step):
    buffer = ReplayBuffer(64)
    producer = Producer(buffer, step=[cls() for cls in step], batch=advantages())
    sampler = make_fragment_sampler(buffer, step=[cls() for cls in step], batch=advantages())
    ends = np.zeros(2, int)
    with sampler, producer.sampler:
        for version in range(5):
            producer.version = version
            expected = copied(producer.produce())
            samples, trajs = sampler.collect_batch(0)
            found = copied(samples)
            assert set(found) - set(expected) == OWN
            # Where nothing was truncated the field holds anything.
            cut = expected["env.truncated"]
            assert_same(found, expected, but=["agent.final_observation"])
            finals = (one["agent.final_observation"][cut] for one in (found, expected))
            np.testing.assert_array_equal(*finals)
            assert found["env.valid"].all()
            assert (found["env.version"] == version).all()
            assert sampler.count_steps(samples) == SPEC.size
            assert trajs == []
            ends += cut.sum(), expected["env.terminated"].sum()
    assert (ends > 0).all()


def test_columns_go_on_with_the_environment_that_they_had():
    buffer = ReplayBuffer(64)
    producer = Producer(buffer)
    sampler = make_fragment_sampler(buffer, batch=advantages())
    with sampler, producer.sampler:
        (rewards, *_) = sampler.batch_transforms
        expected = np.zeros(B)
        broken = 0
        for number in range(6):
            if number % 2:
                # The one whose returns would be missed most.
                environment = int(expected.argmax())
                producer.cutter.break_off(environment)
                broken += expected[environment] > 0
                expected[environment] = 0
            batch = producer.sampler.collect_batch(0)[0]
            reward, done = np.array(batch.env.reward), np.array(batch.env.done)
            fragments = producer.cutter.add_batch(batch, 0)
            # They may come in any order, but the first batch decides on the columns.
            buffer.add(fragments if number == 0 else fragments[::-1], 0)
            samples, _ = sampler.collect_batch(0)
            np.testing.assert_array_equal(samples.env.reward, reward)
            np.testing.assert_array_equal(samples.env.done, done)
            for t in range(T):
                expected = np.where(done[t], 0.0, reward[t] + 0.98 * expected)
            np.testing.assert_allclose(rewards.state()["carried"], expected, rtol=1e-12)
        assert broken


@pytest.mark.parametrize(("length", "goes_on"), [(T, True), (T - 4, False)])
def test_nothing_goes_on_after_padding(length, goes_on):
    class Forgetful(NormalizeAdvantage):
        def forget(self, columns):
            forgotten.append(columns.tolist())

    forgotten = []
    buffer = ReplayBuffer(64)
    producer = Producer(buffer)
    producer.cutter = FragmentCutter(length)
    batch = [EstimateAdvantage(0.98, 0.9), Forgetful()]
    with make_fragment_sampler(buffer, batch=batch) as sampler, producer.sampler:
        producer.produce()
        producer.produce()
        sampler.collect_batch(0)
        sampler.collect_batch(0)
    assert forgotten == [list(range(B))] * (1 if goes_on else 2)


def short_fragments():
    """Return a fragment of 5 steps of environment 0, and whole ones of that batch, of all environments."""
    producer = Producer(ReplayBuffer(8))
    with producer.sampler:
        samples, _ = producer.sampler.collect_batch(0)
        short, *_ = FragmentCutter(5, producer="other").add_batch(samples, 3)
        whole = FragmentCutter(T).add_batch(samples, 3)
        others = FragmentCutter(T, producer="other").add_batch(samples, 3)[1:]
    assert not short.env.done.any()
    return [short, *others], whole


def test_what_is_missing_of_a_short_fragment_is_padding():
    short, whole = short_fragments()
    buffer = ReplayBuffer(64)
    with make_fragment_sampler(buffer, batch=advantages()) as sampler:
        # First full ones, whose values must not be left where there is padding.
        buffer.add(whole, 0)
        before = copied(sampler.collect_batch(0)[0])
        buffer.add(short, 0)
        samples, _ = sampler.collect_batch(0)
        found = copied(samples)
        steps = sampler.count_steps(samples)
    assert steps == SPEC.size - (T - 5)
    assert found["env.valid"][:, 0].tolist() == [True] * 5 + [False] * (T - 5)
    assert found["env.valid"][:, 1:].all()
    # Not trained on as an end, but evaluated as one that goes on.
    assert found["env.truncated"][:5, 0].tolist() == [False] * 4 + [True]
    assert found["env.done"][4, 0]
    assert not found["env.terminated"][:, 0].any()
    for path in ("env.observation", "agent.observation"):
        np.testing.assert_array_equal(found[path][:6, 0], before[path][:6, 0])
    for path in set(found) - {"env.observation", "agent.observation", "agent.final_observation"}:
        assert not found[path][5:, 0].any(), path
        if path.endswith("agent_info.value"):
            np.testing.assert_array_equal(found[path][:, 1:], before[path][:, 1:])
    assert not found["env.observation"][6:, 0].any()
    # Row 5 was a step there, so its value is that of the same observation by the same weights.
    np.testing.assert_allclose(
        found["agent.final_value"][4, 0], before["agent.agent_info.value"][5, 0], rtol=1e-5
    )
    np.testing.assert_array_equal(
        found["agent.final_observation"][4, 0], found["env.observation"][5, 0]
    )


def make_recurrent(*, final=False):
    lengths = ((3, 5), 1, 30, T)
    envs = [lambda n=n: CountingEnv(n, end="alternate", layout="dict") for n in lengths]
    cages = [VectorizedCage(envs, seeds=list(range(B)), reset_automatically=False)]
    handler = NumpyHandler(RecurrentCountingAgent(4, n_envs=B))
    transforms = [FinalObservations()] if final else []
    samples = allocate_samples(cages, SPEC, handler, transforms, next_observation=not final)
    return cages, handler, samples, transforms


def test_batches_of_an_agent_with_a_memory():
    cages, handler, samples, _ = make_recurrent()
    examples, trainer, wanted, transforms = make_recurrent(final=True)
    for cage in examples:
        cage.close()
    buffer, cutter = ReplayBuffer(64), FragmentCutter(T, recurrent=True)
    with (
        RecurrentSampler(SPEC, cages, handler, samples) as source,
        FragmentSampler(SPEC, buffer, trainer, wanted, (), transforms, timeout_s=5) as sampler,
    ):
        for version in range(4):
            batch, _ = source.collect_batch(0)
            expected = copied(batch)
            next_observation = buffer_map(np.array, batch.env.next_observation)
            buffer.add(cutter.add_batch(batch, version), 0)
            ours, _ = sampler.collect_batch(0)
            found = copied(ours)
            left_out = [path for path in expected if "next_observation" in path]
            # The value after the batch needs the agent's state at its end.
            left_out.append("agent.agent_info.value")
            assert_same(found, expected, but=left_out)
            np.testing.assert_array_equal(
                found["agent.agent_info.value"][:T], expected["agent.agent_info.value"][:T]
            )
            assert not found["agent.agent_info.value"][T].any()
            cut = expected["env.truncated"]
            for (path, mine), (_, theirs) in zip(
                buffer_leaves(ours.agent.final_observation),
                buffer_leaves(next_observation),
                strict=True,
            ):
                np.testing.assert_array_equal(np.asarray(mine)[cut], theirs[cut], err_msg=path)
            assert sampler.count_steps(ours) == expected["env.valid"].sum()


def test_batches_say_how_old_their_oldest_step_is():
    buffer, statistics, producer = make_parts(max_staleness=1)
    received = []
    publish_to = [producer.load_weights, lambda *published: received.append(published)]
    workers = Called(publish_to, ())
    sampler = make_fragment_sampler(buffer, workers=workers, statistics=statistics)
    with sampler, producer.sampler:
        for parameter in sampler.agent.model.parameters():
            parameter.data.add_(0.1)
        assert sampler.publish() == sampler.version == buffer.version == 1
        producer.produce()
        for parameter in sampler.agent.model.parameters():
            parameter.data.add_(0.1)
        assert sampler.publish() == 2
        # Copies, so that those of version 1 are still what they were.
        for (_, one), (_, other) in zip(
            buffer_leaves(received[0][0]), buffer_leaves(received[1][0]), strict=True
        ):
            np.testing.assert_allclose(one + 0.1, other, atol=1e-6)
        producer.produce()
        samples, trajs = sampler.collect_batch(0)
        assert len(trajs) == statistics.episodes[""] > 0
        assert sampler.version_of_batch == sampler.stats["version_of_batch"] == 1
        assert sampler.stats["staleness"] == 1
        assert (np.asarray(samples.env.version) == 1).all()
        producer.produce()
        assert sampler.publish() == 3
        assert sampler.publish() == 4
        assert buffer.prepared() == 0
        producer.produce()
        sampler.collect_batch(0)
        assert sampler.stats["staleness"] == 0
        assert sampler.stats["dropped_fragments"] == 2 * B
        assert sampler.stats["waited_s"] < 5
        assert sampler.overview() == ""
        workers.said = [WorkerStatus("worker 0", "running")]
        first, second, *_ = sampler.overview().splitlines()
        assert re.fullmatch(
            rf"batch 2: version 4 of 4, waited \d\.\d\d s; {2 * B} fragments too old in the buffer",
            first,
        )
        assert second.startswith("workers: 1 running")
    assert [version for _, version in received] == [1, 2, 3, 4]


def test_a_batch_waits_for_its_last_fragment():
    buffer, _, producer = make_parts()
    with make_fragment_sampler(buffer) as sampler, producer.sampler:
        samples, _ = producer.sampler.collect_batch(0)
        first, *others = producer.cutter.add_batch(samples, 0)
        buffer.add(others, 0)

        def complete():
            time.sleep(0.2)
            buffer.add([first], 1)

        thread = threading.Thread(target=complete)
        thread.start()
        sampler.collect_batch(0)
        thread.join()
        assert sampler.stats["waited_s"] >= 0.1


def test_what_is_missing_is_said_and_nothing_is_lost():
    buffer, _, producer = make_parts(max_staleness=0)
    with make_fragment_sampler(buffer, timeout_s=0.5) as sampler, producer.sampler:
        with pytest.raises(
            WorkerTimeoutError,
            match=r"batch 1: expected 4 fragments within 0\.5 s, got 0 \(in all 0 added, .*\); check",
        ):
            sampler.collect_batch(0)
        samples, _ = producer.sampler.collect_batch(0)
        fragments = producer.cutter.add_batch(samples, 0)
        buffer.add(fragments[:3], 0)
        with pytest.raises(WorkerTimeoutError, match=r"expected 4 .*, got 3 \(in all 3 added, "):
            sampler.collect_batch(0)
        buffer.add(fragments[3:], 0)
        sampler.collect_batch(0)
        sampler.publish()
        samples, _ = producer.sampler.collect_batch(0)
        late = threading.Timer(0.2, buffer.add, (producer.cutter.add_batch(samples, 0), 0))
        late.start()
        with pytest.raises(
            WorkerTimeoutError, match=r"got 0 .*; 4 arrived but were too old: publish"
        ):
            sampler.collect_batch(0)
        late.join()


def test_what_goes_wrong_in_workers_ends_the_wait():
    def check():
        raise RuntimeError("worker 3 is gone")

    with (
        make_fragment_sampler(ReplayBuffer(8), check_workers=[check]) as sampler,
        pytest.raises(RuntimeError, match="worker 3 is gone"),
    ):
        sampler.collect_batch(0)


def test_a_closed_buffer_and_a_closed_sampler():
    buffer = ReplayBuffer(8)
    sampler = make_fragment_sampler(buffer)
    threading.Timer(0.1, buffer.close).start()
    with pytest.raises(ClosedError, match="ReplayBuffer: fetch: the buffer is closed"):
        sampler.collect_batch(0)
    sampler.close()
    sampler.close()
    for call in (lambda: sampler.collect_batch(0), sampler.publish):
        with pytest.raises(ClosedError, match="FragmentSampler: the sampler is closed"):
            call()


def test_a_state_goes_on_with_versions_and_transforms():
    buffer, _, producer = make_parts()
    with (
        make_fragment_sampler(buffer, batch=advantages()) as sampler,
        make_fragment_sampler(buffer, batch=advantages()) as other,
        producer.sampler,
    ):
        sampler.publish()
        producer.produce()
        sampler.collect_batch(0)
        other.load_state(sampler.state())
        assert other.publish() == 2
        saved, loaded = (one.batch_transforms[0].stats for one in (sampler, other))
        assert saved == loaded
        with pytest.raises(ValueError, match=r"expected the states of .* got the states of None"):
            sampler.load_state({})
        with (
            make_fragment_sampler(buffer) as plain,
            pytest.raises(ValueError, match=r"expected the states of \[\], got the states of \["),
        ):
            plain.load_state(sampler.state())
        with (
            make_fragment_sampler(buffer) as plain,
            pytest.raises(ValueError, match="expected the state of a FragmentSampler"),
        ):
            plain.load_state(producer.sampler.state(environments=False))


def test_a_time_out_of_zero_is_refused():
    with pytest.raises(ValueError, match="timeout_s: expected a positive number of seconds, got 0"):
        make_fragment_sampler(ReplayBuffer(8), timeout_s=0)


def test_buffers_that_fragments_do_not_fill_are_refused():
    cages, handler, samples, _ = make_recurrent()
    with pytest.raises(ValueError, match=r"env\.next_observation\.[\w.]+: fragments do not fill"):
        FragmentSampler(SPEC, ReplayBuffer(8), handler, samples)
    samples = allocate_samples(cages, SPEC, handler, n_batches=2)
    with pytest.raises(ValueError, match="expected a buffer that holds one batch"):
        FragmentSampler(SPEC, ReplayBuffer(8), handler, samples)
    estimate = EstimateAdvantage(0.9, 0.9)
    samples = allocate_samples(cages, SPEC, handler, [estimate])
    with pytest.raises(ValueError, match=r"no field agent\.final_value .* EvaluatePolicy"):
        FragmentSampler(SPEC, ReplayBuffer(8), handler, samples, (), [estimate])
    for cage in cages:
        cage.close()


def test_fragments_that_do_not_fit_are_refused():
    buffer, _, producer = make_parts()
    with make_fragment_sampler(buffer) as sampler, producer.sampler:
        buffer.add([make_fragment(environment=n) for n in range(B)], 0)
        message = r"SampleFragment\(2 steps .*: expected the field agent\.agent_info\.log_prob,"
        with pytest.raises(ValueError, match=message):
            sampler.collect_batch(0)
        longer = FragmentCutter(2 * T, producer="long")
        for _ in range(2):
            fragments = longer.add_batch(producer.sampler.collect_batch(0)[0], 0)
        buffer.add(fragments, 0)
        with pytest.raises(ValueError, match=f"expected at most T={T} steps; cut with"):
            sampler.collect_batch(0)
    transformed = ReplayBuffer(8)
    other = Producer(transformed, step=[Halve()])
    with make_fragment_sampler(transformed) as sampler, other.sampler:
        other.produce()
        with pytest.raises(ValueError, match=r"agent\.observation: expected workers without"):
            sampler.collect_batch(0)
    handler = TorchHandler(make_agent())
    with pytest.raises(ValueError, match=r"expected \[T, B\] = \(16, 5\)"):
        FragmentSampler(BatchSpec(T, 5), buffer, handler, trainer_samples(handler))
