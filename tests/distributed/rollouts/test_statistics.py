"""The trainer's statistics are those of all steps that came; what a policy saw is by those of its version."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
from producers import MAKE_ENV, SPEC, make_agent, make_fragment_sampler
from remembering_transforms import Centre

from parllel import BatchSpec, Seeds
from parllel.cages import Cage
from parllel.distributed.rollouts import (
    AsynchronousSchedule,
    FragmentSender,
    ReplayBuffer,
    RolloutWorker,
    SynchronousSchedule,
)
from parllel.distributed.rollouts.fragments import batch_filler
from parllel.distributed.rollouts.fragments.batch_filler import SeenFragments
from parllel.torch import TorchHandler
from parllel.transforms import EstimateAdvantage, FinalObservations, NormalizeObservations
from parllel_patterns import allocate_samples, build_cages, build_sampler

T, B = SPEC.shape
CLIP, EPSILON = 1.5, 0.01


def normalize():
    return [NormalizeObservations(clip=CLIP, epsilon=EPSILON)]


class Source:
    """A worker that fills a buffer when it is asked to."""

    def __init__(self, stack, buffer, step, *, ready=False, length=T):
        handler = TorchHandler(make_agent())
        if ready:
            cages = [Cage(MAKE_ENV, seed=i, index=i) for i in range(4)]
            samples = allocate_samples(cages, BatchSpec(3, 4), handler, step)
            schedule = AsynchronousSchedule(
                cages, handler, samples, batch_size=3, max_wait_s=0.01, step_transforms=step
            )
        else:
            cages = build_cages(MAKE_ENV, 4, seeds=Seeds(0))
            sampler = build_sampler(BatchSpec(7, 4), cages, handler, step, next_observation=True)
            schedule = SynchronousSchedule(sampler)
        self.sender = stack.enter_context(FragmentSender(buffer))
        worker = RolloutWorker(schedule, fragment_length=length, seed=0, sender=self.sender)
        self.worker = stack.enter_context(worker)

    def run(self, n_steps):
        self.worker.run(n_steps)
        assert self.sender.flush(20)


class Watched(ReplayBuffer):
    """A buffer that remembers what it handed out last."""

    def borrow(self, n, timeout_s, version=None):
        self.last = super().borrow(n, timeout_s, version)
        return self.last


def by_hand(observations, moments):
    mean, var = moments
    return np.clip((observations - mean) / np.sqrt(var + EPSILON), -CLIP, CLIP)


def moments_of(steps):
    """Return mean and variance of the observations of all steps so far."""
    if not steps:
        return np.zeros(4), np.ones(4)
    together = np.concatenate(steps).astype(np.float64)
    return together.mean(axis=0), together.var(axis=0)


@pytest.mark.parametrize(
    ("ready", "length", "reuse"),
    [
        (False, T, {}),
        (True, T, {}),
        (False, T - 4, {}),
        (True, T, {"max_reuse": 3, "order": "random", "seed": 1}),
        (False, T, {"max_reuse": 2, "order": "newest"}),
    ],
)
def test_statistics_agree_with_a_computation_by_hand(ready, length, reuse):
    """Fragments that are shorter than T are padded, and padding counts as little as what comes again."""
    published, steps, keys, finals, versions = {}, [], [], 0, set()

    def record(weights, version):
        statistics = weights["step_transforms"]["0.NormalizeObservations"]["env.observation"]
        mean, var = published[version] = moments_of(steps)
        np.testing.assert_allclose(statistics["mean"], mean, rtol=1e-9)
        np.testing.assert_allclose(statistics["var"], var, rtol=1e-9)
        assert statistics["count"] == sum(map(len, steps))

    with ExitStack() as stack:
        buffer = stack.enter_context(Watched(1000, **reuse))
        source = Source(stack, buffer, normalize(), ready=ready, length=length)
        sampler = stack.enter_context(
            make_fragment_sampler(
                buffer,
                step=normalize(),
                batch=[EstimateAdvantage(0.9, 0.9), FinalObservations()],
                publish_to=[source.worker.load_weights, record],
            )
        )
        for round_ in range(9):
            if round_ % 3 != 2:
                sampler.publish()
            if not reuse or round_ % 2 == 0:
                source.run(2 * SPEC.size)
            samples, _ = sampler.collect_batch(0)
            env, seen = samples.env, np.asarray(samples.agent.observation)
            now = moments_of(steps)
            valid, observed = np.asarray(env.valid), np.asarray(env.observation)
            for column in range(B):
                n = int(valid[:, column].sum())
                raw, version = observed[:n, column], env.version[:n, column]
                (fragment,) = (
                    one for one in buffer.last if np.array_equal(one.env.observation[:n], raw)
                )
                versions |= set(np.asarray(version).tolist())
                for t in range(n):
                    expected = by_hand(raw[t], published[int(version[t])])
                    np.testing.assert_allclose(seen[t, column], expected, rtol=1e-4, atol=1e-5)
                assert not seen[n:, column].any()
                if n == T:
                    after = by_hand(fragment.next_observation, now)
                    row_after = np.asarray(samples.agent.observation[T])[column]
                    np.testing.assert_allclose(row_after, after, rtol=1e-4, atol=1e-5)
                for row, observation in fragment.final_observations.items():
                    final = np.asarray(samples.agent.final_observation)[row, column]
                    expected = by_hand(observation, now)
                    np.testing.assert_allclose(final, expected, rtol=1e-4, atol=1e-5)
                    finals += 1
                if fragment.key not in keys:
                    keys.append(fragment.key)
                    steps.append(fragment.env.observation[:n])
            assert np.asarray(env.valid).sum() == sum(one.n_steps for one in buffer.last)
            mean, var = moments_of(steps)
            stats = sampler.stats
            np.testing.assert_allclose(stats["NormalizeObservations/mean"], mean, rtol=1e-9)
            np.testing.assert_allclose(stats["NormalizeObservations/std"], var**0.5, rtol=1e-9)
    assert finals > 0
    assert len(versions) > 2
    assert (len(keys) < 9 * B) == bool(reuse)


def test_columns_of_trainer_and_workers_may_differ_in_number():
    with ExitStack() as stack:
        buffer = stack.enter_context(ReplayBuffer(1000))
        source = Source(stack, buffer, [mine := Centre()], length=T)
        sampler = make_fragment_sampler(
            buffer, step=[Centre()], publish_to=[source.worker.load_weights]
        )
        stack.enter_context(sampler)
        sampler.publish()
        source.run(SPEC.size)
        sampler.collect_batch(0)
        last = np.array(mine.last)
        sampler.publish()
        source.run(1)
        assert mine.count == SPEC.size
        np.testing.assert_array_equal(mine.mean, sampler.step_transforms[0].mean)
        np.testing.assert_array_equal(mine.last, last)


def test_what_does_not_fit_the_workers_raises_at_the_trainer():
    with ExitStack() as stack:
        buffer = stack.enter_context(ReplayBuffer(1000))
        source = Source(stack, buffer, normalize())
        sampler = stack.enter_context(
            make_fragment_sampler(buffer, publish_to=[source.worker.load_weights])
        )
        with pytest.raises(
            ValueError, match=r"got statistics for \[\]; give the trainer and the workers the"
        ):
            sampler.publish()
        source.run(1)
        assert source.worker.version == 0


# ---------------------------------------------------------------------- fragments that come again


@pytest.mark.parametrize("seed", range(20))
def test_each_fragment_is_new_once(seed):
    generator = np.random.default_rng(seed)
    seen, model = SeenFragments(), set()
    for _ in range(400):
        key = ("ab"[generator.integers(2)], *generator.integers((2, 3, 12)).tolist())
        assert seen.add(key) == (key not in model)
        model.add(key)


def test_memory_of_fragments_is_bounded():
    seen = SeenFragments()
    # Every other one is missing, and all that are between two epochs.
    for epoch in range(3):
        for sequence in range(0, 10_000, 2):
            assert seen.add(("a", 0, epoch, sequence))
    assert seen.add(("a", 0, 2, 9_997))
    assert not seen.add(("a", 0, 2, 9_998))
    # Too long ago to be known.
    assert not seen.add(("a", 0, 0, 1))


def test_environments_that_came_longest_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(batch_filler, "_MAX_ENVIRONMENTS", 2)
    seen = SeenFragments()
    for start in range(3):
        assert seen.add((f"worker 1, start {start}", 0, 0, 0))
        assert seen.add(("worker 0", 0, 0, start))
    assert not seen.add(("worker 0", 0, 0, 0))
    assert not seen.add(("worker 1, start 2", 0, 0, 0))
    assert seen.add(("worker 1, start 0", 0, 0, 0))
