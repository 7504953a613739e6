"""Samplers look up the steps of agent and cage once a batch; methods that are overridden run in every row."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from parllel.agents import NumpyHandler
from parllel.buffers import buffer_leaves
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.errors import ClosedError, WrongStateError
from parllel.samplers import AlternatingSampler, BasicSampler, RecurrentSampler
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel.types import BatchSpec, overrides
from parllel_patterns import allocate_samples

T, B = 5, 4
FACTORIES = [partial(CountingEnv, lengths=3 + i, end="truncated") for i in range(B)]


def sampler_of(Sampler, *, cage=VectorizedCage, handler=NumpyHandler, agent=None, **options):
    """Return a sampler of B environments, in two cages so that it can alternate."""
    cages = [
        cage(
            FACTORIES[half], seeds=range(B)[half], reset_automatically=Sampler.resets_automatically
        )
        for half in (slice(0, 2), slice(2, B))
    ]
    handler = handler(agent or CountingAgent(2))
    samples = allocate_samples(cages, BatchSpec(T, B), handler, **options)
    return Sampler(BatchSpec(T, B), cages, handler, samples)


def batches(sampler, n=3):
    """Return the values of all leaves after each batch, and the episodes."""
    found = []
    with sampler:
        for _ in range(n):
            samples, trajs = sampler.collect_batch(0)
            leaves = {name: np.array(leaf) for name, leaf in buffer_leaves(samples)}
            found.append((leaves, [traj.as_dict() for traj in trajs]))
    return found


def check_equal(found, expected):
    for (leaves, trajs), (other, others) in zip(found, expected, strict=True):
        assert leaves.keys() == other.keys()
        for name, leaf in leaves.items():
            np.testing.assert_array_equal(leaf, other[name], err_msg=name)
        assert trajs == others


class CountedHandler(NumpyHandler):
    """Count the calls of `step`."""

    calls = 0

    def step(self, t, columns):
        self.calls += 1
        super().step(t, columns)


class CountedCage(VectorizedCage):
    """Count the calls of `start_row` and `finish_row`."""

    def start_row(self, t, group=0):
        self._calls = vars(self).get("_calls", 0) + 1
        super().start_row(t, group)

    def finish_row(self, group=0):
        self._calls = vars(self).get("_calls", 0) + 1
        super().finish_row(group)


@pytest.mark.parametrize("Sampler", [BasicSampler, AlternatingSampler, RecurrentSampler])
def test_methods_that_a_class_overrides_are_called_in_every_row(Sampler):
    class CountedSampler(Sampler):
        acts = 0

        def act(self, t, columns):
            self.acts += 1
            super().act(t, columns)

    sampler = sampler_of(CountedSampler, cage=CountedCage, handler=CountedHandler)
    with sampler:
        sampler.collect_batch(0)
        rows = int(np.asarray(sampler.samples.env.done).shape[0])
        if not Sampler.resets_automatically:  # ends when the last environment waits
            rows = int(np.asarray(sampler.samples.env.valid).any(axis=1).sum())
        each = 2 if Sampler is AlternatingSampler else 1
        assert sampler.acts == sampler.handler.calls == rows * each
        # A row is started and finished, and the first reset is finished too.
        assert [cage._calls for cage in sampler.cages.cages] == [2 * rows + 1] * 2
    plain = batches(sampler_of(Sampler, cage=CountedCage, handler=CountedHandler))
    check_equal(batches(sampler_of(Sampler)), plain)


def test_a_method_that_an_object_overrides_is_called_in_every_row():
    sampler = sampler_of(BasicSampler)
    cage, rows = sampler.cages.cages[0], []
    start_row = cage.start_row
    object.__setattr__(cage, "start_row", lambda t, group=0: (rows.append(t), start_row(t, group)))
    with sampler:
        sampler.collect_batch(0)
        rows.clear()
        cage.bound_step()(2)
    assert rows == [2]


@pytest.mark.parametrize("whole", [True, False], ids=["timed", "plain"])
def test_a_timed_batch_is_the_same(whole):
    sampler = sampler_of(BasicSampler)
    with sampler:
        collect = sampler.collect_timed_batch if whole else sampler.collect_batch
        found = [np.array(collect(0)[0].agent.action) for _ in range(3)]
    expected = [leaves["agent.action"] for leaves, _ in batches(sampler_of(BasicSampler))]
    np.testing.assert_array_equal(found, expected)


class Meddling(CountingAgent):
    """Call a function in row 3 of the second batch."""

    meddle = None
    row = 0

    def step(self, observation, **inputs):
        self.row += 1
        if self.row == T + 4:
            self.meddle()
        return super().step(observation, **inputs)


@pytest.mark.parametrize(
    ("meddle", "error", "message"),
    [
        (lambda cage: cage.close(), ClosedError, r"used after close"),
        (
            lambda cage: cage.start_random_row(3),
            WrongStateError,
            r"start_row: random step at row 3 is not finished",
        ),
    ],
    ids=["closed", "in progress"],
)
def test_a_cage_is_checked_in_every_row(meddle, error, message):
    agent = Meddling(2)
    cage = VectorizedCage(FACTORIES, seeds=range(B))
    handler = NumpyHandler(agent)
    samples = allocate_samples([cage], BatchSpec(T, B), handler)
    agent.meddle = partial(meddle, cage)
    with BasicSampler(BatchSpec(T, B), [cage], handler, samples) as sampler:
        sampler.collect_batch(0)
        with pytest.raises(error, match=message):
            sampler.collect_batch(0)
        with pytest.raises(WrongStateError, match="an error ended the last batch halfway"):
            sampler.collect_batch(0)


@pytest.mark.parametrize("t", [-1, T])
def test_rows_outside_of_the_batch_are_refused(t):
    with sampler_of(BasicSampler) as sampler:
        sampler.collect_batch(0)
        with pytest.raises(IndexError):
            sampler.cages.cages[0].bound_step()(t)


def test_the_steps_of_a_batch_write_to_that_batch():
    sampler = sampler_of(BasicSampler, n_batches=2)
    expected = batches(sampler_of(BasicSampler), 4)
    check_equal(batches(sampler, 4), expected)


def test_a_cage_with_workers_steps_rows_with_its_two_methods():
    cage = SynchronizedProcessCage(FACTORIES, n_workers=1, seeds=range(B))
    handler = NumpyHandler(CountingAgent(2))
    samples = allocate_samples([cage], BatchSpec(T, B), handler)
    with BasicSampler(BatchSpec(T, B), [cage], handler, samples) as sampler:
        found = batches(sampler)
    one = VectorizedCage(FACTORIES, seeds=range(B))
    handler = NumpyHandler(CountingAgent(2))
    samples = allocate_samples([one], BatchSpec(T, B), handler)
    check_equal(found, batches(BasicSampler(BatchSpec(T, B), [one], handler, samples)))


def test_values_are_cast_within_a_kind_of_number():
    view = np.zeros(3, np.int32)
    NumpyHandler.write(view, np.array([1, 2, 3]))  # int64
    assert view.tolist() == [1, 2, 3]
    NumpyHandler.write(view, np.array([4, 5, 6], np.int32))
    assert view.tolist() == [4, 5, 6]
    with pytest.raises(TypeError, match="Cannot cast"):
        NumpyHandler.write(view, np.array([0.5, 1.0, 2.0]))
    assert view.tolist() == [4, 5, 6]


def test_overrides_of_classes_and_of_objects():
    class Base:
        def one(self):
            pass

        def two(self):
            pass

    class Mine(Base):
        def two(self):
            pass

    assert not overrides(Base(), Base, "one", "two")
    assert overrides(Mine(), Base, "two")
    assert not overrides(Mine(), Base, "one")
    mine = Mine()
    mine.one = len
    assert overrides(mine, Base, "one")
