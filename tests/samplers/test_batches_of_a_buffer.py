"""A buffer of several batches holds what as many buffers of one would, and costs no message more."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation
from hypothesis import given, settings
from hypothesis import strategies as st
from sampler_cages import CAGES, assert_same

from parllel import BatchSpec
from parllel.agents import NumpyHandler, row_views
from parllel.buffers import buffer_leaves
from parllel.cages import (
    ProcessCage,
    SynchronizedProcessCage,
    VectorizedCage,
    synchronized_process_cage,
)
from parllel.errors import RegistrationError, WrongStateError
from parllel.samplers import AlternatingSampler, BasicSampler, EvalSampler, RecurrentSampler
from parllel.system.processes.child import Child
from parllel.system.processes.pipe_end import PipeEnd
from parllel.testing import CountingAgent, CountingEnv
from parllel.testing.cages.cage_hooks import run
from parllel.testing.sampler_contract import DOUBLED, SCALED, SHIFTED
from parllel.testing.sampler_setup import SamplerSetup, make_sampler
from parllel.testing.transform_samples import numbers_of
from parllel.transforms import (
    BatchMemo,
    BatchTransform,
    ClipRewards,
    EstimateAdvantage,
    NormalizeAdvantage,
    NormalizeObservations,
    NormalizeRewards,
)
from parllel_patterns import allocate_samples

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


# Cages in groups are bound anew.
@pytest.mark.parametrize("kind", CAGES)
@settings(max_examples=4)
@given(
    T=st.integers(1, 5),
    n_batches=st.integers(2, 5),
    switching=st.booleans(),
    cls=st.sampled_from([BasicSampler, AlternatingSampler, RecurrentSampler]),
    seed=st.integers(0, 99),
)
@pytest.mark.few(2)
def test_it_holds_what_buffers_of_one_batch_would(kind, T, n_batches, switching, cls, seed):
    setup = SamplerSetup(
        T,
        tuple(
            partial(CountingEnv, lengths=(1, 4, 3), random_lengths=True, end=end, layout="dict")
            for end in ("terminated", "truncated", "alternate")
        ),
        seed=seed,
        step_transforms=(DOUBLED, SHIFTED),
        batch_transforms=(SCALED,),
        storage="managed",
        recurrent=not cls.resets_automatically,
    )
    setup = replace(setup, **CAGES[kind])
    several = replace(setup, switching=switching, batches=n_batches)
    with make_sampler(cls, setup) as one, make_sampler(cls, several) as other:
        held = {}
        for number in range(2 * n_batches + 1):
            expected, expected_trajs = one.collect_batch(number)
            found, trajs = other.collect_batch(number)
            held[found.env.reward.block.window_number] = numbers_of(expected)
            assert_same(numbers_of(found), numbers_of(expected))
            assert [traj.as_dict() for traj in trajs] == [traj.as_dict() for traj in expected_trajs]
        # Each batch stayed as it was until its place came round again.
        whole = np.array(other.samples.env.reward.full).reshape(n_batches, T, -1)
        for place, numbers in held.items():
            np.testing.assert_array_equal(whole[place], numbers["env.reward"])


def stacked(length: int) -> gym.Env:
    return FrameStackObservation(CountingEnv((length, 2)), 3)


@pytest.mark.parametrize("workers", [None, {"n_workers": 1}, {"n_workers": 1, "participate": True}])
def test_stacks_that_are_stored_frame_by_frame(workers):
    found = []
    for options in ({}, {"n_batches": 3, "frames": 3}):
        factories, spec = [partial(stacked, 2 + i) for i in range(2)], BatchSpec(3, 2)
        cage: Any = VectorizedCage(factories, seeds=range(2))
        if workers is not None:
            cage.close()
            cage = SynchronizedProcessCage(
                factories, seeds=range(2), start_method="fork", **workers
            )
        with cage:
            handler = NumpyHandler(CountingAgent(3, seed=0))
            samples = allocate_samples([cage], spec, handler, **options)
            with BasicSampler(spec, [cage], handler, samples) as sampler:
                found.append([numbers_of(sampler.collect_batch(0)[0]) for _ in range(7)])
    for one, other in zip(*found, strict=True):
        assert_same(other, one)


# ---------------------------------------------------------------------- transforms


class KeepsAView(BatchTransform):
    """As users write them: views are made in `bind`, which is all that there is."""

    def bind(self, samples):
        self.reward = np.asarray(samples.env.reward)

    def transform_batch(self, samples):
        self.seen = self.reward.copy()


class KeepsOneMore(ClipRewards):
    """Inherits `use_batch` from a class that knows nothing of its view."""

    def bind(self, samples):
        super().bind(samples)
        self.reward = np.asarray(samples.env.reward)

    def transform_batch(self, samples):
        super().transform_batch(samples)
        self.seen = self.reward.copy()


class AsksAMemo(BatchTransform):
    """Has neither `bind` nor `use_batch`: its memo follows the batches by itself."""

    def __init__(self):
        self.memo = BatchMemo(lambda samples: np.asarray(samples.env.reward))

    def transform_batch(self, samples):
        self.seen = self.memo.of(samples).copy()


class OwnHandler(NumpyHandler):
    """Keeps a view of its own."""

    def bind(self, samples):
        super().bind(samples)
        self.step_numbers = np.asarray(samples.env.env_info.step)


@pytest.mark.parametrize("n_batches", [1, 3])
def test_no_view_stays_at_the_batch_before(n_batches):
    transforms = [KeepsAView(), KeepsOneMore(-1, 1), AsksAMemo()]
    spec = BatchSpec(2, 2)
    with VectorizedCage([CountingEnv] * 2, seeds=range(2)) as cage:
        handler = OwnHandler(CountingAgent(3, seed=0))
        samples = allocate_samples(
            [cage], spec, handler, transforms, env_info={"step": 0}, n_batches=n_batches
        )
        sampler = BasicSampler(spec, [cage], handler, samples, batch_transforms=transforms)
        for _ in range(4):
            batch, _ = sampler.collect_batch(0)
            for transform in transforms:
                np.testing.assert_array_equal(transform.seen, np.asarray(batch.env.reward))
            assert np.shares_memory(handler.step_numbers, np.asarray(batch.env.env_info.step))


def test_the_transforms_of_parllel_write_into_the_batch_that_is_current():
    found = []
    for n_batches in (1, 3):
        steps = [NormalizeObservations()]
        batches = [
            NormalizeRewards(0.9),
            ClipRewards(-1, 1),
            EstimateAdvantage(0.9, 0.8),
            NormalizeAdvantage(),
        ]
        spec = BatchSpec(3, 2)
        with VectorizedCage([CountingEnv] * 2, seeds=range(2)) as cage:
            handler = NumpyHandler(CountingAgent(3, seed=0))
            samples = allocate_samples(
                [cage], spec, handler, [*steps, *batches], n_batches=n_batches
            )
            sampler = BasicSampler(spec, [cage], handler, samples, steps, batches)
            found.append([numbers_of(sampler.collect_batch(0)[0]) for _ in range(8)])
    for one, other in zip(*found, strict=True):
        assert_same(other, one)


# ---------------------------------------------------------------------- what it costs, and what is refused


def messages_of_a_batch(monkeypatch: pytest.MonkeyPatch, make: Any, n_batches: int) -> list[int]:
    """Return how many messages main has sent or read in each batch after the first two."""
    sent = [0]
    send = Child.send_bytes

    def counted(self: Child, *arguments: Any) -> None:
        sent[0] += 1
        send(self, *arguments)

    read = PipeEnd.read

    def received(self: PipeEnd, *arguments: Any) -> bytes:
        sent[0] += 1
        return read(self, *arguments)

    monkeypatch.setattr(Child, "send_bytes", counted)
    monkeypatch.setattr(PipeEnd, "read", received)
    spec = BatchSpec(2, 2)
    cages = make()
    handler = NumpyHandler(CountingAgent(3, seed=0))
    samples = allocate_samples(cages, spec, handler, n_batches=n_batches)
    counts = []
    with BasicSampler(spec, cages, handler, samples) as sampler:
        for _ in range(2 + 2 * n_batches):
            before = sent[0]
            sampler.collect_batch(0)
            counts.append(sent[0] - before)
    monkeypatch.undo()
    return counts[2:]


def synchronized_cages(**options: Any) -> list[Any]:
    factories = [partial(CountingEnv, 1000)] * 2
    return [SynchronizedProcessCage(factories, seeds=range(2), start_method="fork", **options)]


def process_cages() -> list[Any]:
    return [
        ProcessCage(partial(CountingEnv, 1000), seed=i, index=i, start_method="fork")
        for i in range(2)
    ]


@pytest.mark.parametrize("n_batches", [1, 4])
@pytest.mark.parametrize("participate", [False, True])
def test_nothing_goes_over_a_pipe_between_batches(monkeypatch, n_batches, participate):
    make = partial(synchronized_cages, n_workers=1, participate=participate)
    assert set(messages_of_a_batch(monkeypatch, make, n_batches)) == {0}


def test_a_process_cage_is_sent_its_rows_and_no_more(monkeypatch):
    one, four = (set(messages_of_a_batch(monkeypatch, process_cages, n)) for n in (1, 4))
    assert one == four
    assert len(one) == 1
    assert min(one) > 0


def test_arrays_that_are_not_rotated_together_are_refused():
    spec = BatchSpec(2, 1)
    with VectorizedCage([CountingEnv], seeds=[0]) as cage:
        handler = NumpyHandler(CountingAgent(3, seed=0))
        samples = allocate_samples([cage], spec, handler, n_batches=3)
        sampler = BasicSampler(spec, [cage], handler, samples)
        sampler.collect_batch(0)
        samples.env.reward.rotate()
        with pytest.raises(RegistrationError, match=r"got batches \[1, 2\]; rotate them together"):
            sampler.collect_batch(0)


@pytest.mark.parametrize(
    "make",
    [
        partial(VectorizedCage, [CountingEnv], seeds=[0]),
        partial(ProcessCage, CountingEnv, start_method="fork"),
        partial(SynchronizedProcessCage, [CountingEnv], n_workers=1, start_method="fork"),
    ],
    ids=["VectorizedCage", "ProcessCage", "SynchronizedProcessCage"],
)
def test_a_cage_refuses_a_batch_that_its_buffer_does_not_have(make):
    with make() as cage:
        handler = NumpyHandler(CountingAgent(3, seed=0))
        samples = allocate_samples([cage], BatchSpec(2, 1), handler, n_batches=3)
        cage.set_samples_buffer(samples, slice(0, 1))
        with pytest.raises(IndexError, match="batch 3: expected 0 to 2"):
            cage.use_batch(3)
        cage.use_batch(2)
        cage.start_reset(0)
        with pytest.raises(Exception, match="use_batch: reset at row 0 is not finished"):
            cage.use_batch(1)
        cage.finish_row()
        first = np.asarray(samples.env.observation.full).reshape(3, 2, -1).any(axis=(1, 2))
        assert first.tolist() == [False, False, True]


@pytest.mark.parametrize("n_batches", [0, 1.5, "2", True])
def test_a_number_of_batches_that_cannot_be(n_batches):
    with VectorizedCage([CountingEnv], seeds=[0]) as cage:
        handler = NumpyHandler(CountingAgent(3, seed=0))
        with pytest.raises(ValueError, match="n_batches: expected an int of at least 1, got"):
            allocate_samples([cage], BatchSpec(2, 1), handler, n_batches=n_batches)


class LooksBack(NumpyHandler):
    """Reads another field, row by row, and counts the views that are made of it."""

    def __init__(self, agent):
        super().__init__(agent)
        self.n_made = 0

    def convert(self, array):
        self.n_made += 1
        return super().convert(array)

    def agent_inputs(self, observation, rows, columns):
        if isinstance(rows, int) and rows < 32:
            self.row_view("env.reward", rows, columns)
        return super().agent_inputs(observation, rows, columns)


def test_views_that_are_not_kept_are_made_once_for_each_batch(monkeypatch):
    monkeypatch.setattr(row_views, "MAX_VIEWS", 1)
    with VectorizedCage([CountingEnv], seeds=[0]) as cage:
        spec, handler = BatchSpec(32, 1), LooksBack(CountingAgent(3, seed=0))
        samples = allocate_samples([cage], spec, handler, n_batches=3)
        with BasicSampler(spec, [cage], handler, samples) as sampler:
            sampler.collect_batch(0)
            handler.n_made = 0
            sampler.collect_batch(0)
    assert 32 <= handler.n_made <= 33 * len(list(buffer_leaves(samples)))


def test_after_a_buffer_that_was_refused_there_is_none(monkeypatch):
    def refuse(*_):
        raise RegistrationError("bound to the wrong place")

    spec = BatchSpec(2, 1)
    with SynchronizedProcessCage([CountingEnv], n_workers=1, start_method="fork") as cage:
        handler = NumpyHandler(CountingAgent(3, seed=0))
        before = allocate_samples([cage], spec, handler, n_batches=4)
        refused = allocate_samples([cage], spec, handler)
        cage.set_samples_buffer(before, slice(0, 1))
        cage.use_batch(3)
        run(cage, "start_reset", 0)
        monkeypatch.setattr(synchronized_process_cage, "check_places", refuse)
        with pytest.raises(RegistrationError, match="bound to the wrong place"):
            cage.set_samples_buffer(refused, slice(0, 1))
        with pytest.raises(WrongStateError, match="no samples buffer was set"):
            cage.start_row(0)
        assert len(cage.render_mode) == 1  # the worker lives, and has no batch 3 to look for
        monkeypatch.undo()
        cage.set_samples_buffer(refused, slice(0, 1))
        run(cage, "start_row", 0)


@pytest.mark.parametrize("options", [{"switching": True}, {"n_batches": 3}])
def test_an_evaluation_takes_a_buffer_of_one_batch_alone(options):
    with VectorizedCage([CountingEnv], seeds=[0]) as cage:
        handler = NumpyHandler(CountingAgent(3, seed=0))
        samples = allocate_samples([cage], BatchSpec(1, 1), handler, **options)
        with pytest.raises(ValueError, match="expected a buffer of one batch for an evaluation"):
            EvalSampler([cage], handler, samples, 1, max_steps=9)
