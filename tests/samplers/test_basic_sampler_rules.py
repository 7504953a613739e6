from __future__ import annotations

import contextlib
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

from parllel.buffers import AgentSamples, EnvSamples, Samples, add_fields, allocate, buffer_leaves
from parllel.cages import Cage, ProcessCage
from parllel.errors import ClosedError
from parllel.samplers import BasicSampler, CageColumns, EvalSampler
from parllel.testing.dummy_agents import fingerprint
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_transforms import RecordingBatchTransform, RecordingStepTransform
from parllel.testing.sampler_contract import ENVIRONMENTS, check_batches
from parllel.testing.sampler_setup import SamplerSetup
from parllel.testing.simulated_batches import simulate
from parllel.transforms import NormalizeObservations
from parllel.types import BatchSpec


@pytest.fixture
def parts():
    parts = SamplerSetup(3, ENVIRONMENTS[:2]).build()
    yield parts
    parts.close()


def test_transforms_are_called_in_order():
    calls = []
    setup = SamplerSetup(
        2,
        # The one truncates in row 1 of each batch, the other terminates: its end needs no value.
        (
            partial(CountingEnv, lengths=2, end="truncated"),
            partial(CountingEnv, lengths=2, end="terminated"),
        ),
        step_transforms=(
            partial(RecordingStepTransform, "first", target="agent.first", calls=calls),
            partial(RecordingStepTransform, "second", source="agent.first", calls=calls),
        ),
        batch_transforms=(
            partial(RecordingBatchTransform, "third", target="env.third", calls=calls),
            partial(RecordingBatchTransform, "fourth", target="env.fourth", calls=calls),
        ),
    )
    with setup.build().sampler(BasicSampler) as sampler:
        sampler.collect_batch(0)
        expected = [(name, "step", t) for t in range(3) for name in ("first", "second")]
        expected += [("first", "final", 1), ("second", "final", 1)]
        expected += [("first", "end"), ("second", "end"), ("third", "batch"), ("fourth", "batch")]
        assert calls == expected
        calls.clear()
        sampler.collect_batch(4)
        assert calls == expected


def test_no_final_values_are_asked_for_where_nothing_was_truncated():
    calls = []
    setup = SamplerSetup(
        4,
        (partial(CountingEnv, lengths=2),),
        step_transforms=(partial(RecordingStepTransform, "only", calls=calls),),
    )
    with setup.build().sampler(BasicSampler) as sampler:
        samples, _ = sampler.collect_batch(0)
        assert [call for call in calls if "final" in call] == []
        assert not np.asarray(samples.agent.final_value).any()


def test_values_see_normalised_observations_also_after_the_batch():
    setup = SamplerSetup(5, ENVIRONMENTS)
    parts = setup.build()
    normalize = NormalizeObservations()
    samples = parts.samples._replace(
        agent=parts.samples.agent._make(
            {k: v for k, v in parts.samples.agent._asdict().items() if k != "observation"}
        )
    )
    samples = add_fields(samples, normalize.fields(samples), parts.batch_spec)
    history = []
    with parts.sampler(BasicSampler, samples=samples, step_transforms=[normalize]) as sampler:
        for batch, expected in enumerate(simulate(setup, 4)):
            sampler.collect_batch(0)
            raw = expected.fields["env.observation"].astype(np.float64)
            seen = np.concatenate(history) if history else np.zeros((0, 3))
            mean = seen.mean(axis=0) if batch else np.zeros(3)
            var = seen.var(axis=0) if batch else np.ones(3)
            normal = np.clip((raw - mean) / np.sqrt(var + 1e-8), -10, 10)
            found = samples.agent.observation
            value = samples.agent.agent_info.value
            for t in range(6):
                row = np.asarray(found[t])
                np.testing.assert_allclose(row, normal[t], rtol=1e-4, atol=1e-4)
                np.testing.assert_array_equal(
                    np.asarray(value[t]), fingerprint(row).astype(np.float32)
                )
            final = np.asarray(samples.agent.final_value)
            truncated = np.asarray(samples.env.truncated)
            # Of observations far above 10 the fingerprint would be far above the sum of weights.
            assert (np.abs(final) <= 60).all()
            assert (final[~truncated] == 0).all()
            assert (final[truncated] != 0).all()
            history.append(raw[:5].reshape(-1, 3))
    np.testing.assert_allclose(sampler.stats["NormalizeObservations/mean"], seen_mean(history))


def seen_mean(history):
    return np.concatenate(history).mean(axis=0)


def test_trajs_come_by_column_and_span_batches():
    setup = SamplerSetup(4, ENVIRONMENTS)
    with setup.build().sampler(BasicSampler) as sampler:
        for expected in simulate(setup, 5):
            _, trajs = sampler.collect_batch(0)
            wanted = [traj for column in expected.trajs for traj in column]
            found = [(traj.length, traj.return_, traj.discounted_return) for traj in trajs]
            assert found == wanted  # eighths and halves: exact in any order of addition
    lengths = [length for batch in simulate(setup, 5) for length, *_ in batch.trajs[2]]
    assert max(lengths) == 11  # which two batches and a half hold


def test_the_agent_samples_in_sample_mode_whatever_came_before(parts):
    with parts.sampler(BasicSampler) as sampler:
        parts.handler.train_mode()
        sampler.collect_batch(0)
        assert parts.handler.agent.mode == "sample"


def test_close_closes_cages_and_agent(parts):
    sampler = parts.sampler(BasicSampler)
    sampler.close()
    assert parts.handler.agent.closed == 1
    for cage in parts.cages:
        with pytest.raises(ClosedError, match=r"after close\(\)"):
            cage.render()


def test_close_goes_on_where_one_cage_fails():
    class Stuck(CountingEnv):
        def close(self):
            if self.actions:
                raise OSError("does not close")

    setup = SamplerSetup(3, (Stuck, CountingEnv, Stuck))
    parts = setup.build()
    sampler = parts.sampler(BasicSampler)
    sampler.collect_batch(0)
    with pytest.raises(OSError, match="does not close"):
        sampler.close()
    assert parts.handler.agent.closed == 1
    with pytest.raises(ClosedError, match=r"after close\(\)"):
        parts.cages[1].render()


# ---------------------------------------------------------------------- decorrelation


@pytest.mark.parametrize("make_cage", [Cage, partial(ProcessCage, start_method="fork")])
def test_decorrelation_takes_random_steps_that_are_no_samples(make_cage):
    setup = SamplerSetup(4, ENVIRONMENTS, make_cage=make_cage)
    seed = np.random.SeedSequence(3)
    parts = setup.build()
    with parts.sampler(BasicSampler, decorrelation_steps=9, decorrelation_seed=seed) as sampler:
        check_batches(sampler, simulate(setup, 4, decorrelation_steps=9, decorrelation_seed=seed))


def first_steps(most, seed, B=40):
    """Return how far each environment is when the first batch begins."""
    setup = SamplerSetup(1, (partial(CountingEnv, lengths=1000),) * B)
    with setup.build().sampler(
        BasicSampler, decorrelation_steps=most, decorrelation_seed=seed
    ) as sampler:
        samples, _ = sampler.collect_batch(0)
        return np.asarray(samples.env.observation)[0, :, 2].tolist()


def test_decorrelation_takes_none_to_all_of_its_steps():
    counts = first_steps(3, 0)
    assert set(counts) == {0, 1, 2, 3}
    assert first_steps(3, 0) == counts
    assert first_steps(3, 1) != counts
    assert set(first_steps(0, None)) == {0}


# ---------------------------------------------------------------------- wrong arguments


def test_cages_have_to_fill_the_columns(parts):
    with pytest.raises(ValueError, match="expected 2 environments for B=2, got 1"):
        parts.sampler(BasicSampler, cages=parts.cages[:1])
    with pytest.raises(ValueError, match="expected at least one"):
        parts.sampler(BasicSampler, cages=[])
    with pytest.raises(ValueError, match="got the same cage twice"):
        parts.sampler(BasicSampler, cages=[parts.cages[0]] * 2)


def test_columns_follow_each_other(parts):
    columns = CageColumns(parts.cages, 2).columns
    assert columns == [slice(0, 1), slice(1, 2)]


@pytest.mark.parametrize("batch_spec", [BatchSpec(4, 2), BatchSpec(3, 3)])
def test_the_buffer_has_to_be_that_of_the_batch(parts, batch_spec):
    with pytest.raises(ValueError, match=r"samples: expected \[T, B\] = "):
        parts.sampler(BasicSampler, batch_spec=batch_spec)


def test_the_buffer_has_to_be_samples(parts):
    with pytest.raises(TypeError, match="samples: expected Samples"):
        parts.sampler(BasicSampler, samples=parts.samples._asdict())


def test_transforms_have_to_be_of_their_kind(parts):
    step, batch = RecordingStepTransform("a"), RecordingBatchTransform("b")
    for options, message in (
        (
            {"step_transforms": [step, batch]},
            r"step_transforms\[1\]: .* belongs to batch_transforms",
        ),
        ({"batch_transforms": [step]}, r"batch_transforms\[0\]: .* it belongs to step_transforms"),
        ({"batch_transforms": [np.tanh]}, "expected a BatchTransform, got <ufunc 'tanh'>$"),
    ):
        with pytest.raises(TypeError, match=message):
            parts.sampler(BasicSampler, **options)
    row = SamplerSetup(1, ENVIRONMENTS[:2]).build()
    with (
        contextlib.closing(CageColumns(row.cages, 2)),
        pytest.raises(TypeError, match=r"step_transforms\[0\]: .* belongs to batch_transforms"),
    ):
        EvalSampler(row.cages, row.handler, row.samples, 2, [batch])


def test_an_agent_needs_a_handler(parts):
    with pytest.raises(TypeError, match=r"handler: expected a Handler, .*NumpyHandler\(agent\)"):
        parts.sampler(BasicSampler, handler=parts.handler.agent)
    with pytest.raises(TypeError, match=r"handler: expected a Handler, got None$"):
        parts.sampler(BasicSampler, handler=None)


def test_the_buffer_has_to_fit_the_spaces(parts):
    other = SamplerSetup(3, tuple(partial(make, layout="scalar") for make in ENVIRONMENTS[:2]))
    with pytest.raises(ValueError, match=r"env\.observation: expected an Array \[T, B, \*\[3\]\]"):
        parts.sampler(BasicSampler, samples=other.build().samples)


def test_decorrelation_needs_a_seed(parts):
    with pytest.raises(ValueError, match="decorrelation_seed: expected a seed"):
        parts.sampler(BasicSampler, decorrelation_steps=1)
    with pytest.raises(ValueError, match="decorrelation_steps: expected 0 or more, got -1"):
        parts.sampler(BasicSampler, decorrelation_steps=-1, decorrelation_seed=0)


def test_an_agent_without_values_needs_no_fields_for_them():
    # Neither agent_info nor final_value: nothing is bootstrapped, nothing is missed.
    factories = (partial(CountingEnv, lengths=2, end="truncated"),)
    setup = SamplerSetup(3, factories)
    parts = setup.build()
    full = parts.samples
    samples = allocate(
        Samples(
            agent=AgentSamples(action=full.agent.action, agent_info=None),
            env=EnvSamples(**full.env._asdict()),
        ),
        parts.batch_spec,
    )
    samples = samples._replace(agent=samples.agent._replace(observation=samples.env.observation))
    with parts.sampler(BasicSampler, samples=samples) as sampler:
        sampler.collect_batch(0)
        expected = simulate(setup, 1)[0].fields
        for path, leaf in buffer_leaves(samples):
            np.testing.assert_array_equal(np.asarray(leaf), expected[path][:3], err_msg=path)


def test_actions_reach_their_environments_unchanged():
    space = spaces.Discrete(7)
    setup = SamplerSetup(6, (partial(CountingEnv, lengths=100, action_space=space),) * 3)
    parts = setup.build()
    with parts.sampler(BasicSampler) as sampler:
        samples, _ = sampler.collect_batch(0)
        for b, cage in enumerate(parts.cages):
            assert cage.actions == np.asarray(samples.agent.action)[:, b].tolist()
            assert all(type(action) is np.int64 for action in cage.actions)


@pytest.mark.parametrize("cls", [Cage, ProcessCage])
def test_cages_that_wait_for_a_reset_are_refused(cls):
    with cls(CountingEnv, reset_automatically=False) as cage:
        with pytest.raises(ValueError, match=r"cage 0 \(.*\): expected reset_automatically=True"):
            CageColumns([cage], 1, reset_automatically=True)
        CageColumns([cage], 1)
