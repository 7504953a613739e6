"""V-trace and importance weights against plain Python."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transform_samples import make_samples, write_padded_rows

from parllel.buffers import Field, NamedTuple, add_fields
from parllel.transforms import (
    EstimateAdvantage,
    EstimateVtrace,
    ImportanceWeights,
    add_transform_fields,
    estimate_advantage,
    vtrace,
)
from parllel.types import BatchSpec


def random_batch(seed, T, B, end_rate=0.3, spread=1.0):
    """Return random inputs in the order of the arguments; what must not be read is NaN."""
    rng = np.random.default_rng(seed)
    terminated = rng.random((T, B)) < end_rate
    truncated = rng.random((T, B)) < end_rate
    final_value = rng.normal(0, 3, (T, B)).astype(np.float32)
    final_value[~truncated | terminated] = np.nan
    bootstrap_value = rng.normal(0, 3, B).astype(np.float32)
    bootstrap_value[terminated[-1] | truncated[-1]] = np.nan
    return SimpleNamespace(
        reward=rng.normal(0, 2, (T, B)).astype(np.float32),
        value=rng.normal(0, 3, (T, B)).astype(np.float32),
        log_prob=rng.normal(-1, spread, (T, B)).astype(np.float32),
        behaviour_log_prob=rng.normal(-1, spread, (T, B)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        final_value=final_value,
        bootstrap_value=bootstrap_value,
    )


def following_value(batch, t, b):
    if batch.terminated[t, b]:
        return 0.0
    if batch.truncated[t, b]:
        return float(batch.final_value[t, b])
    T = len(batch.reward)
    return float(batch.bootstrap_value[b] if t == T - 1 else batch.value[t + 1, b])


def reference(batch, discount, gae_lambda, rho_clip, c_clip):
    """Sum eq. 1 forwards from each step, in Python floats; return advantages and targets."""
    T, B = batch.reward.shape

    def error(t, b):
        after = discount * following_value(batch, t, b)
        return float(batch.reward[t, b]) + after - float(batch.value[t, b])

    def ratio(t, b):
        return math.exp(float(batch.log_prob[t, b]) - float(batch.behaviour_log_prob[t, b]))

    def target(start, b):
        total, weight = float(batch.value[start, b]), 1.0
        for t in range(start, T):
            total += weight * min(rho_clip, ratio(t, b)) * error(t, b)
            if batch.terminated[t, b] or batch.truncated[t, b]:
                break
            weight *= discount * gae_lambda * min(c_clip, ratio(t, b))
        return total

    advantage, targets = np.zeros((T, B)), np.zeros((T, B))
    for b in range(B):
        for t in range(T):
            targets[t, b] = target(t, b)
            advantage[t, b] = error(t, b)
            last = t == T - 1 or batch.terminated[t, b] or batch.truncated[t, b]
            if not last:
                beyond = target(t + 1, b) - float(batch.value[t + 1, b])
                advantage[t, b] += discount * gae_lambda * beyond
    return advantage, targets


def run(batch, *factors):
    outputs = [np.full(batch.reward.shape, np.nan, np.float32) for _ in range(2)]
    vtrace(*vars(batch).values(), *factors, *outputs)
    return outputs


fractions = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))


@st.composite
def clips(draw):
    rho_clip = draw(st.one_of(st.sampled_from([1.0, math.inf]), st.floats(0.01, 3.0)))
    return rho_clip, draw(st.floats(0.01, min(rho_clip, 1.5)))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    T=st.integers(1, 10),
    B=st.integers(1, 4),
    end_rate=st.sampled_from([0.0, 0.2, 0.7]),
    discount=fractions,
    gae_lambda=fractions,
    clips=clips(),
)
def test_targets_and_advantages_equal_the_reference(
    seed, T, B, end_rate, discount, gae_lambda, clips
):
    batch = random_batch(seed, T, B, end_rate)
    found = run(batch, discount, gae_lambda, *clips)
    expected = reference(batch, discount, gae_lambda, *clips)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    end_rate=st.sampled_from([0.0, 0.3]),
    discount=fractions,
    gae_lambda=fractions,
    clip=st.sampled_from([1.0, 2.0, math.inf]),
)
def test_with_one_policy_it_is_generalised_advantage_estimation(
    seed, end_rate, discount, gae_lambda, clip
):
    batch = random_batch(seed, 9, 3, end_rate)
    batch.log_prob = batch.behaviour_log_prob
    advantage, target = run(batch, discount, gae_lambda, clip, 1.0)
    inputs = {name: array for name, array in vars(batch).items() if "log_prob" not in name}
    expected = np.full_like(advantage, np.nan)
    estimate_advantage(*inputs.values(), discount, gae_lambda, expected)
    np.testing.assert_array_equal(advantage, expected)
    np.testing.assert_allclose(target, expected + batch.value, rtol=1e-6, atol=1e-6)


def test_a_case_computed_by_hand():
    batch = SimpleNamespace(
        reward=np.float32([[1.0], [2.0], [4.0]]),
        value=np.float32([[0.5], [1.0], [2.0]]),
        # Ratios of 2, 1/2 and 4.
        log_prob=np.log(np.float32([[0.5], [0.25], [0.8]])),
        behaviour_log_prob=np.log(np.float32([[0.25], [0.5], [0.2]])),
        terminated=np.zeros((3, 1), bool),
        truncated=np.zeros((3, 1), bool),
        final_value=np.full((3, 1), np.nan, np.float32),
        bootstrap_value=np.float32([6.0]),
    )
    advantage, target = run(batch, 0.5, 1.0, 1.5, 1.0)
    # Errors: 1 + 0.5 - 0.5 = 1, 2 + 1 - 1 = 2, 4 + 3 - 2 = 5; truncated ratios: 1.5, 0.5, 1.5 and 1, 0.5, 1.
    last = 2.0 + 1.5 * 5.0
    middle = 1.0 + 0.5 * 2.0 + 0.5 * 0.5 * (last - 2.0)
    first = 0.5 + 1.5 * 1.0 + 0.5 * 1.0 * (middle - 1.0)
    np.testing.assert_allclose(target[:, 0], [first, middle, last], rtol=1e-6)
    # With a lambda of 1, reward + discount * next target - value.
    expected = [1 + 0.5 * middle - 0.5, 2 + 0.5 * last - 1, 4 + 0.5 * 6 - 2]
    np.testing.assert_allclose(advantage[:, 0], expected, rtol=1e-6)


def test_ratios_beyond_float32_count_as_the_clip():
    batch = random_batch(0, 4, 2, 0.0)
    batch.log_prob[...] = 500.0
    most = run(batch, 0.9, 0.9, 2.0, 1.0)
    batch.log_prob[...] = batch.behaviour_log_prob + np.float32(np.log(2.0) + 0.01)
    for one, other in zip(most, run(batch, 0.9, 0.9, 2.0, 1.0), strict=True):
        np.testing.assert_array_equal(one, other)


def test_nan_of_a_step_stays_before_the_end_of_the_episode():
    batch = random_batch(1, 5, 1, 0.0)
    batch.terminated[1] = True
    expected = run(batch, 0.9, 0.8, 1.0, 1.0)
    for array in (batch.value, batch.log_prob, batch.reward):
        array[2:] = np.nan
    for one, other in zip(run(batch, 0.9, 0.8, 1.0, 1.0), expected, strict=True):
        np.testing.assert_array_equal(one[:2], other[:2])
        assert np.isnan(one[2:]).all()


def test_shapes_and_outputs_are_checked_before_the_loop_runs():
    batch = random_batch(0, 3, 2)
    batch.log_prob = batch.log_prob[:2]
    with pytest.raises(ValueError, match=r"log_prob: expected shape \(3, 2\), got \(2, 2\)"):
        run(batch, 0.9, 0.9, 1.0, 1.0)
    inputs = vars(random_batch(0, 3, 2)).values()
    with pytest.raises(ValueError, match=r"out_return: expected float32 \(3, 2\), got float64"):
        vtrace(*inputs, 0.9, 0.9, 1.0, 1.0, np.zeros((3, 2), np.float32), np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"reward: expected shape \[T, B\], got \(2,\)"):
        vtrace(np.zeros(2), *list(inputs)[1:], 0.9, 0.9, 1.0, 1.0, None, None)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: EstimateVtrace(1.1), r"discount: expected a number in \[0, 1\], got 1.1"),
        (lambda: EstimateVtrace(0.9, gae_lambda=-1), r"gae_lambda: expected a number in \[0, 1\]"),
        (lambda: EstimateVtrace(0.9, rho_clip=0), "rho_clip: expected a number above 0, got 0"),
        (lambda: EstimateVtrace(0.9, c_clip=math.nan), "c_clip: expected a number above 0"),
        (lambda: EstimateVtrace(0.9, c_clip=2.0), "c_clip: expected at most rho_clip 1.0, got 2.0"),
        (lambda: ImportanceWeights(0.0), "clip: expected a number above 0, got 0.0"),
    ],
)
def test_arguments_out_of_range_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_arguments_that_are_no_numbers_are_refused():
    with pytest.raises(TypeError, match="rho_clip: expected a number above 0, got '1'"):
        EstimateVtrace(0.9, rho_clip="1")


# ---------------------------------------------------------------------- in samples


def evaluated_samples(T, B, *transforms, valid=False):
    """Allocate samples with what EvaluatePolicy writes, and the fields of the transforms."""
    samples = make_samples(T, B, valid=valid)
    scalar = np.float32(0)
    log_prob = make_samples(T, B).env.reward
    info = NamedTuple(value=samples.agent.agent_info.value, log_prob=log_prob)
    samples = samples._replace(agent=samples.agent._replace(agent_info=info))
    fields = {
        "agent.learner_log_prob": scalar,
        "agent.learner_value": Field(scalar, padding=1),
        "agent.learner_final_value": scalar,
    }
    samples = add_fields(samples, fields, BatchSpec(T, B))
    return add_transform_fields(samples, transforms, BatchSpec(T, B))


def fill(samples, batch):
    agent, env = samples.agent, samples.env
    np.asarray(env.reward)[...] = batch.reward
    np.asarray(env.terminated)[...] = batch.terminated
    np.asarray(env.truncated)[...] = batch.truncated
    np.asarray(agent.agent_info.log_prob)[...] = batch.behaviour_log_prob
    np.asarray(agent.learner_log_prob)[...] = batch.log_prob
    np.asarray(agent.learner_final_value)[...] = batch.final_value
    rows = np.concatenate([batch.value, batch.bootstrap_value[np.newaxis]])
    write_padded_rows(agent.learner_value, rows)


def test_the_transform_reads_what_the_learner_says():
    transform = EstimateVtrace(0.97, gae_lambda=0.9, rho_clip=1.3, c_clip=0.9)
    samples = evaluated_samples(7, 3, transform)
    for seed in range(2):  # the second batch goes through the same views
        batch = random_batch(seed, 7, 3)
        fill(samples, batch)
        # What the policy that sampled said of values does not matter.
        np.asarray(samples.agent.agent_info.value)[...] = np.nan
        transform.transform_batch(samples)
        advantage, target = reference(batch, 0.97, 0.9, 1.3, 0.9)
        np.testing.assert_allclose(
            np.asarray(samples.agent.advantage), advantage, rtol=1e-6, atol=1e-6
        )
        np.testing.assert_allclose(np.asarray(samples.agent.return_), target, rtol=1e-6, atol=1e-6)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    clip=st.one_of(st.just(math.inf), st.floats(0.01, 5.0)),
    spread=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_weights_are_truncated_ratios(seed, clip, spread):
    transform = ImportanceWeights(clip)
    samples = evaluated_samples(5, 3, transform)
    batch = random_batch(seed, 5, 3, spread=spread)
    fill(samples, batch)
    transform.transform_batch(samples)
    expected = [
        [
            min(clip, math.exp(float(batch.log_prob[t, b]) - float(batch.behaviour_log_prob[t, b])))
            for b in range(3)
        ]
        for t in range(5)
    ]
    np.testing.assert_allclose(
        np.asarray(samples.agent.importance_weight), expected, rtol=1e-6, atol=1e-6
    )
    assert transform.stats["weight"] == pytest.approx(np.mean(expected), rel=1e-5)
    # Whichever way float32 rounds the clip.
    assert transform.stats["clipped"] == np.mean(np.array(expected) == clip)


def test_weights_without_a_clip_end_where_float32_does():
    transform = ImportanceWeights(math.inf)
    samples = evaluated_samples(2, 1, transform)
    batch = random_batch(0, 2, 1)
    batch.log_prob[0] = batch.behaviour_log_prob[0] + np.float32(500.0)
    fill(samples, batch)
    transform.transform_batch(samples)
    assert np.isfinite(np.asarray(samples.agent.importance_weight)).all()
    assert transform.stats["clipped"] == 0.5


def test_cells_without_a_step_become_zero_and_do_not_count():
    weights, targets = ImportanceWeights(2.0), EstimateVtrace(0.9)
    samples = evaluated_samples(4, 2, weights, targets, valid=True)
    batch = random_batch(3, 4, 2, 0.0)
    batch.terminated[1, 0] = True
    batch.log_prob[...] = batch.behaviour_log_prob + np.float32(np.log(1.5))
    batch.log_prob[0, 1] += 9.0
    fill(samples, batch)
    valid = np.asarray(samples.env.valid)
    valid[...] = True
    valid[2:, 0] = False
    for field in (samples.agent.learner_log_prob, samples.agent.learner_value, samples.env.reward):
        np.asarray(field)[~valid] = np.nan
    for transform in (weights, targets):
        transform.transform_batch(samples)
    for name in ("importance_weight", "advantage", "return_"):
        found = np.asarray(getattr(samples.agent, name))
        assert np.isfinite(found).all(), name
        assert not found[~valid].any(), name
    assert weights.stats["weight"] == pytest.approx((5 * 1.5 + 2.0) / 6, rel=1e-5)
    assert weights.stats["clipped"] == pytest.approx(1 / 6)
    valid[...] = False
    weights.transform_batch(samples)
    assert weights.stats == {}


def test_two_estimates_of_advantages_are_refused():
    with pytest.raises(ValueError, match="two transforms write it, EstimateAdvantage and Estimate"):
        evaluated_samples(3, 2, EstimateAdvantage(0.9, 0.9), EstimateVtrace(0.9))
