"""Step transforms of rollout workers: both schedules apply them as samplers do."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from remembering_transforms import Centre, Difference
from weighted_agent import WeightedAgent, weighted
from worker_setup import (
    LENGTH,
    B,
    T,
    collect,
    cut_batches,
    digests,
    factories,
    make_cages,
    make_handler,
    make_sampler,
    make_worker,
    ready,
    rows,
)

from parllel import BatchSpec
from parllel.distributed.rollouts import (
    AsynchronousSchedule,
    FragmentSampler,
    FragmentSender,
    ReplayBuffer,
    RolloutWorker,
)
from parllel.distributed.rollouts.published_parts import PublishedParts
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.faulty_envs import FaultyEnv
from parllel.transforms import NormalizeObservations
from parllel_patterns import allocate_samples

CELL = CountingEnv().observation_space.shape
STATISTICS = {
    "env.observation": {"mean": np.full(CELL, 2.5), "var": np.full(CELL, 3.0), "count": 7}
}
PUBLISHED = {"step_transforms": {"0.NormalizeObservations": STATISTICS}}


def chained():
    return [NormalizeObservations(target="agent.normalized"), Difference("agent.normalized")]


def expected(step, per_environment, *, recurrent=False):
    """Cut the batches of a plain sampler whose statistics do not change."""
    sampler = make_sampler(recurrent=recurrent, step=step)
    step[0].load_state(STATISTICS)
    step[0].end_batch = lambda samples: None
    return cut_batches(sampler, per_environment, version=1)


@pytest.mark.parametrize(
    "make",
    [
        rows,
        lambda **options: ready(make_cages("vectorized"), rows=1, **options),
        lambda **options: ready(make_cages("single"), rows=3, batch_size=1, **options),
        lambda **options: ready(make_cages("workers"), rows=2, batch_size=3, **options),
    ],
    ids=["rows", "vectorized", "single", "workers"],
)
def test_both_schedules_show_the_agent_what_a_sampler_does(make):
    found = collect(make(step=chained()), 20 * LENGTH * B, published=PUBLISHED)
    assert all(f.env.observation.shape == f.agent.observation.shape for f in found)
    enough = min(5, *(sum(f.environment == b for f in found) for b in range(B)))
    assert enough >= 3
    assert digests(found, enough) == expected(chained(), enough)


@pytest.mark.parametrize("schedule", ["rows", "ready"])
def test_an_agent_with_a_memory(schedule):
    step = [NormalizeObservations()]
    if schedule == "rows":
        made = rows(recurrent=True, step=step)
    else:
        made = ready(make_cages("single"), make_handler(recurrent=True), batch_size=2, step=step)
    found = collect(made, 5 * T * B, published=PUBLISHED, length=T)
    assert digests(found, 3) == expected([NormalizeObservations()], 3, recurrent=True)


def test_parts_of_a_dict():
    path, makes = "env.observation.clock", factories("dict")
    statistics = {
        f"{path}.{name}": {"mean": np.full(shape, 2.5), "var": np.ones(shape), "count": 1}
        for name, shape in (("_0", ()), ("_1", (2,)))
    }
    published = {"step_transforms": {"0.NormalizeObservations": statistics}}
    made = [
        rows(step=[NormalizeObservations(path)], makes=makes),
        ready(make_cages("single", makes=makes), step=[NormalizeObservations(path)], batch_size=2),
    ]
    found, others = (collect(one, 5 * T * B, published=published, length=T) for one in made)
    assert digests(found, 3) == digests(others, 3)
    cages, handler = make_cages("single", makes=makes), make_handler()
    step = [NormalizeObservations(path)]
    samples = allocate_samples(cages, BatchSpec(T, B), handler, step)
    with (
        ReplayBuffer(B) as buffer,
        FragmentSampler(BatchSpec(T, B), buffer, handler, samples, step) as sampler,
    ):
        buffer.add(found[:B], 0)
        batch, _ = sampler.collect_batch(0)
        raw, seen = batch.env.observation, batch.agent.observation
        np.testing.assert_array_equal(seen.mark, raw.mark)
        for name in ("_0", "_1"):
            mine, theirs = (np.asarray(getattr(one.clock, name)) for one in (seen, raw))
            np.testing.assert_allclose(mine, np.clip(theirs - 2.5, -10, 10), rtol=1e-6)
        mean = np.asarray(raw.clock._0, np.float64).mean()
        assert np.isclose(sampler.stats["NormalizeObservations/clock/_0/mean"], mean)
    for cage in cages:
        cage.close()


def test_a_restarted_environment_continues_nothing():
    # Each process takes 6 steps of an episode of 100.
    crashing = partial(FaultyEnv, "step", "exit", number=7, lengths=100)
    sources = [make_worker(crashing), make_worker(partial(CountingEnv, 5), 1)]
    schedule = ready(sources, batch_size=1, rows=4, step=[Difference()])
    fragments = []
    with ReplayBuffer(1000) as buffer, FragmentSender(buffer) as sender:
        with RolloutWorker(schedule, fragment_length=LENGTH, seed=0, sender=sender) as worker:
            while schedule.restarts < 3:
                worker.run(20)
        assert sender.flush(20)
        fragments = buffer.fetch(buffer.prepared(), 10)
    for environment in range(2):
        ours = [one for one in fragments if one.environment == environment]
        first, raw, seen = (
            np.concatenate([take(one) for one in ours])
            for take in (
                lambda one: one.env.first,
                lambda one: one.env.observation,
                lambda one: one.agent.observation,
            )
        )
        differences = np.diff(raw, axis=0, prepend=raw[:1])
        np.testing.assert_array_equal(seen, np.where(first[:, np.newaxis], 0, differences))
        assert first.sum() >= 3


# ---------------------------------------------------------------------- statistics


@pytest.mark.parametrize("schedule", ["rows", "ready"])
def test_statistics_change_with_the_weights_and_at_no_other_time(schedule):
    handler, step = weighted(), [NormalizeObservations(clip=np.inf, epsilon=1e-30)]
    if schedule == "rows":
        made = rows(handler, step=step)
    else:
        made = ready(make_cages("single"), handler, batch_size=2, step=step)
    versions = []

    def published(version):
        moments = {"mean": np.full(CELL, -8.0 * version), "var": np.ones(CELL), "count": 1}
        state = {"env.observation": moments}
        return {
            **WeightedAgent.weights(10 * version),
            "step_transforms": {"0.NormalizeObservations": state},
        }

    def progress(record):
        # Both tell the version that they belong to.
        assert int(record.agent_info.weight) == 10 * record.version
        shift = 8.0 * record.version
        np.testing.assert_array_equal(record.agent_observation, record.observation + shift)
        versions.append(record.version)
        if len(versions) in (20, 60):
            version = record.version + 3
            assert worker.load_weights(published(version), version)
            assert not worker.load_weights(published(1), version - 1)

    worker = RolloutWorker(made, fragment_length=LENGTH, seed=1, progress_handler=progress)
    with worker:
        worker.run(150)
        version = worker.version
        for wrong, message in [
            (
                WeightedAgent.weights(1),
                r"step_transforms: expected statistics for the worker's \['0\.Norm",
            ),
            (
                {**WeightedAgent.weights(1), "step_transforms": {"0.Other": STATISTICS}},
                r"got statistics for \['0\.Other'\]; give the trainer and the workers the same",
            ),
            (
                {
                    **WeightedAgent.weights(1),
                    "step_transforms": {"0.NormalizeObservations": {"env.observation": {}}},
                },
                "NormalizeObservations: expected the statistics of the worker's copy, ",
            ),
        ]:
            with pytest.raises(ValueError, match=message):
                worker.load_weights(wrong, 100)
        worker.run(1)
        assert worker.version == version == 6
    assert sorted(set(versions)) == [0, 3, 6]


def test_weights_with_statistics_are_refused_by_a_worker_without():
    with (
        RolloutWorker(rows(weighted()), fragment_length=LENGTH, seed=1) as worker,
        pytest.raises(ValueError, match=r"expected statistics for the worker's \[\], got"),
    ):
        worker.load_weights({**WeightedAgent.weights(1), **PUBLISHED}, 1)


def test_what_belongs_to_columns_stays_where_it_is():
    centre = Centre()
    with RolloutWorker(rows(step=[centre]), fragment_length=LENGTH, seed=1) as worker:
        centre.last[...] = 9.0
        state = {"mean": np.full(CELL, 4.0), "count": 3}
        worker.load_weights({"step_transforms": {"0.Centre": state}}, 1)
        worker.run(1)
    assert centre.count == 3
    assert (centre.mean == 4).all()
    assert (centre.last == 9).all()


def test_statistics_may_come_in_any_order():
    """Those of a resumed trainer come in the order of its checkpoint."""
    path, makes = "env.observation", factories("dict")
    mine, theirs = NormalizeObservations(path), NormalizeObservations(path)
    with RolloutWorker(rows(step=[mine], makes=makes), fragment_length=LENGTH, seed=1) as worker:
        state = {name: {**moments, "count": 5} for name, moments in mine.state().items()}
        assert len(state) == 3
        theirs.load_state(dict(reversed(state.items())))
        parts = PublishedParts(make_handler(), [theirs])
        worker.load_weights(parts.state(), 1)
        worker.run(1)
    assert [moments["count"] for moments in mine.state().values()] == [5, 5, 5]


def test_what_cannot_be_published_is_refused():
    class Misspelt(Centre):
        shared = ("mean", "cuont")

    class Worded(Centre):
        def state(self):
            return {**super().state(), "count": "three"}

    class Named(WeightedAgent):
        def models(self):
            return {"step_transforms": None}

    for step, message in [
        (Misspelt(), r"Misspelt: .* each name in shared, .*; \['cuont'\] are missing"),
        (Worded(), "Worded: count: expected arrays and numbers, got 'three'"),
    ]:
        schedule = rows(step=[step])
        with pytest.raises(ValueError, match=message):
            RolloutWorker(schedule, fragment_length=LENGTH, seed=1)
        schedule.close()
    handler = weighted()
    handler.agent.__class__ = Named
    schedule = rows(handler)
    with pytest.raises(ValueError, match="Named: models: expected a name other than 'step_tr"):
        RolloutWorker(schedule, fragment_length=LENGTH, seed=1)
    schedule.close()


def test_samples_and_transforms_that_do_not_fit():
    cages, handler = make_cages("single"), make_handler()
    step = [NormalizeObservations()]
    arguments = {"batch_size": 1, "max_wait_s": 0.0}
    for allocated, given, message in [
        (step, [], r"agent\.observation was allocated for NormalizeObservations, .* not given"),
        ([], step, r"NormalizeObservations: writes agent\.observation, which is the same array as"),
    ]:
        samples = allocate_samples(cages, BatchSpec(2, B), handler, allocated)
        with pytest.raises(ValueError, match=message):
            AsynchronousSchedule(cages, handler, samples, step_transforms=given, **arguments)
    with pytest.raises(TypeError, match=r"step_transforms\[0\]: expected a StepTransform"):
        AsynchronousSchedule(cages, handler, samples, step_transforms=["normalize"], **arguments)
    for cage in cages:
        cage.close()
