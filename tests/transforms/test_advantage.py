"""Generalised advantage estimation and discounted returns against plain Python."""

from __future__ import annotations

import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transform_samples import make_samples, write_padded_rows

from parllel.transforms import EstimateAdvantage, estimate_advantage
from parllel.transforms.returns import DiscountedReturns, discounted_returns


def random_batch(seed, T, B, end_rate=0.3):
    """Return random inputs; what must not be read is NaN."""
    rng = np.random.default_rng(seed)
    terminated = rng.random((T, B)) < end_rate
    truncated = rng.random((T, B)) < end_rate
    final_value = rng.normal(0, 3, (T, B)).astype(np.float32)
    final_value[~truncated] = np.nan
    return SimpleNamespace(
        reward=rng.normal(0, 2, (T, B)).astype(np.float32),
        value=rng.normal(0, 3, (T, B)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        final_value=final_value,
        bootstrap_value=rng.normal(0, 3, B).astype(np.float32),
    )


def reference_advantage(batch, discount, gae_lambda):
    """Sum the series of eq. 16 forwards from each step of each environment, in Python floats."""
    T, B = batch.reward.shape
    result = np.zeros((T, B))
    for b in range(B):
        for start in range(T):
            weight = 1.0
            for t in range(start, T):
                if batch.terminated[t, b]:
                    behind = 0.0
                elif batch.truncated[t, b]:
                    behind = float(batch.final_value[t, b])
                else:
                    following = batch.bootstrap_value[b] if t == T - 1 else batch.value[t + 1, b]
                    behind = float(following)
                error = float(batch.reward[t, b]) + discount * behind - float(batch.value[t, b])
                result[start, b] += weight * error
                if batch.terminated[t, b] or batch.truncated[t, b]:
                    break
                weight *= discount * gae_lambda
    return result


def reference_returns(batch, discount):
    """Return what advantages of whole episodes are added to: values cancel with a lambda of 1."""
    return reference_advantage(batch, discount, 1.0) + batch.value


def advantage(batch, discount, gae_lambda):
    out = np.full(batch.reward.shape, np.nan, np.float32)
    estimate_advantage(*vars(batch).values(), discount, gae_lambda, out)
    return out


def returns(batch, discount):
    inputs = {name: array for name, array in vars(batch).items() if name != "value"}
    out = np.full(batch.reward.shape, np.nan, np.float32)
    discounted_returns(*inputs.values(), discount, out)
    return out


fractions = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))


def numpy_sums(batch, discount, gae_lambda):
    """Compute advantages a row at a time in float64, in the order of operations of the compiled loop."""
    value = np.concatenate([batch.value, batch.bootstrap_value[np.newaxis]]).astype(np.float64)
    reward, final_value = batch.reward.astype(np.float64), batch.final_value.astype(np.float64)
    result = np.zeros(batch.reward.shape)
    trace = np.zeros(batch.reward.shape[1])
    for t in reversed(range(len(reward))):
        next_value = np.where(batch.truncated[t], final_value[t], value[t + 1])
        next_value = np.where(batch.terminated[t], 0.0, next_value)
        ends = batch.terminated[t] | batch.truncated[t]
        carried = np.where(ends, 0.0, discount * gae_lambda * trace)
        trace = result[t] = reward[t] + discount * next_value - value[t] + carried
    return result.astype(np.float32)


def numpy_returns(batch, discount):
    """Compute returns a row at a time in float64."""
    result = np.zeros(batch.reward.shape)
    following = batch.bootstrap_value.astype(np.float64)
    for t in reversed(range(len(batch.reward))):
        following = np.where(batch.truncated[t], batch.final_value[t], following)
        following = np.where(batch.terminated[t], 0.0, following)
        following = result[t] = batch.reward[t].astype(np.float64) + discount * following
    return result.astype(np.float32)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    T=st.integers(1, 24),
    B=st.integers(1, 6),
    end_rate=st.sampled_from([0.0, 0.2, 0.7]),
    discount=fractions,
    gae_lambda=fractions,
)
def test_both_functions_equal_the_references_and_numpy_to_the_last_bit(
    seed, T, B, end_rate, discount, gae_lambda
):
    batch = random_batch(seed, T, B, end_rate)
    found, summed = advantage(batch, discount, gae_lambda), returns(batch, discount)
    close = partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-6)
    close(found, reference_advantage(batch, discount, gae_lambda))
    close(summed, reference_returns(batch, discount))
    np.testing.assert_array_equal(found, numpy_sums(batch, discount, gae_lambda))
    np.testing.assert_array_equal(summed, numpy_returns(batch, discount))


def one_step(terminated, truncated):
    return SimpleNamespace(
        reward=np.float32([[1.0], [10.0]]),
        value=np.float32([[2.0], [4.0]]),
        terminated=np.array([[terminated], [False]]),
        truncated=np.array([[truncated], [False]]),
        final_value=np.float32([[8.0], [np.nan]]),
        bootstrap_value=np.float32([16.0]),
    )


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"),
    [
        # The step that follows is worth 10 + 0.5 * 16 - 4 = 14.
        (False, False, 1 + 0.5 * 4 - 2 + 0.5 * 0.25 * 14),
        (True, False, 1 - 2),
        (False, True, 1 + 0.5 * 8 - 2),
        (True, True, 1 - 2),
    ],
)
def test_terminated_and_truncated_are_kept_apart(terminated, truncated, expected):
    result = advantage(one_step(terminated, truncated), discount=0.5, gae_lambda=0.25)
    assert result[:, 0].tolist() == [expected, 14.0]


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"),
    [(False, False, 1 + 0.5 * 18), (True, False, 1), (False, True, 1 + 0.5 * 8), (True, True, 1)],
)
def test_returns_keep_terminated_and_truncated_apart(terminated, truncated, expected):
    result = returns(one_step(terminated, truncated), discount=0.5)
    assert result[:, 0].tolist() == [expected, 18.0]


def test_strides_dtypes_and_read_only_inputs_make_no_difference():
    batch = random_batch(3, 6, 4)
    expected = advantage(batch, 0.9, 0.8), returns(batch, 0.9)
    other = SimpleNamespace(**vars(batch))
    other.reward = np.asfortranarray(batch.reward.astype(np.float64))
    other.value = np.repeat(batch.value, 2, axis=1)[:, ::2]
    other.terminated = batch.terminated.astype(np.uint8)
    other.bootstrap_value = batch.bootstrap_value.copy()
    other.bootstrap_value.flags.writeable = False
    out = np.full((6, 8), np.nan, np.float32)[:, ::2]
    estimate_advantage(*vars(other).values(), 0.9, 0.8, out)
    np.testing.assert_array_equal(out, expected[0])
    np.testing.assert_array_equal(returns(other, 0.9), expected[1])


def test_shapes_and_outputs_are_checked_before_the_loop_runs():
    batch = random_batch(0, 3, 2)
    batch.value = batch.value[:2]
    with pytest.raises(ValueError, match=r"value: expected shape \(3, 2\), got \(2, 2\)"):
        advantage(batch, 0.9, 0.9)
    batch = random_batch(0, 3, 2)
    inputs = vars(batch).values()
    with pytest.raises(ValueError, match=r"out_advantage: expected float32 \(3, 2\), got float64"):
        estimate_advantage(*inputs, 0.9, 0.9, np.zeros((3, 2)))
    read_only = np.zeros((3, 2), np.float32)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="out_advantage: expected a writable array"):
        estimate_advantage(*inputs, 0.9, 0.9, read_only)
    batch.reward = batch.reward[0]
    with pytest.raises(ValueError, match=r"reward: expected shape \[T, B\], got \(2,\)"):
        advantage(batch, 0.9, 0.9)
    with pytest.raises(ValueError, match=r"reward: expected shape \[T, B\], got \(2,\)"):
        returns(batch, 0.9)


def fill(samples, batch):
    np.asarray(samples.env.reward)[...] = batch.reward
    np.asarray(samples.env.terminated)[...] = batch.terminated
    np.asarray(samples.env.truncated)[...] = batch.truncated
    np.asarray(samples.agent.final_value)[...] = batch.final_value
    rows = np.concatenate([batch.value, batch.bootstrap_value[np.newaxis]])
    write_padded_rows(samples.agent.agent_info.value, rows)


def test_estimate_advantage_reads_the_padding_row_and_writes_its_fields():
    transform = EstimateAdvantage(0.97, 0.9)
    samples = make_samples(7, 3, np.float32(0), transform)
    for seed in range(2):  # the second batch goes through the same views
        batch = random_batch(seed, 7, 3)
        fill(samples, batch)
        transform.transform_batch(samples)
        expected = reference_advantage(batch, 0.97, 0.9)
        found = np.asarray(samples.agent.advantage)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(np.asarray(samples.agent.return_), found + batch.value)


def test_another_reward_field_and_another_buffer():
    transform = EstimateAdvantage(0.9, 0.8, reward="env.scaled")
    first = make_samples(4, 2)
    first = first._replace(env=first.env._replace(scaled=first.env.reward))
    with pytest.raises(ValueError, match=r"no field 'agent\.final_value'"):
        transform.bind(first)

    plain = EstimateAdvantage(0.9, 0.8)
    bound = make_samples(4, 2, np.float32(0), plain)
    other = make_samples(5, 1, np.float32(0), EstimateAdvantage(0.9, 0.8))
    batch = random_batch(1, 5, 1)
    fill(other, batch)
    plain.transform_batch(other)
    np.testing.assert_allclose(
        np.asarray(other.agent.advantage), reference_advantage(batch, 0.9, 0.8), atol=1e-6
    )
    assert not np.asarray(bound.agent.advantage).any()


def test_discounted_returns_with_and_without_a_value_function():
    batch = random_batch(5, 6, 3)
    bootstrapped = DiscountedReturns(0.9)
    samples = make_samples(6, 3, np.float32(0), bootstrapped)
    fill(samples, batch)
    bootstrapped.transform_batch(samples)
    np.testing.assert_allclose(
        np.asarray(samples.agent.return_), reference_returns(batch, 0.9), rtol=1e-6, atol=1e-6
    )

    plain = DiscountedReturns(0.9, value=None)
    samples = make_samples(6, 3, np.float32(0), plain)
    assert "final_value" not in samples.agent._fields
    np.asarray(samples.env.reward)[...] = batch.reward
    np.asarray(samples.env.terminated)[...] = batch.terminated
    np.asarray(samples.env.truncated)[...] = batch.truncated
    plain.transform_batch(samples)
    batch.final_value[...] = 0.0
    batch.bootstrap_value[...] = 0.0
    np.testing.assert_allclose(
        np.asarray(samples.agent.return_), reference_returns(batch, 0.9), rtol=1e-6, atol=1e-6
    )


def test_value_without_a_padding_row_is_named():
    transform = EstimateAdvantage(0.9, 0.9)
    with pytest.raises(ValueError, match=r"agent\.agent_info\.value: expected an array with padd"):
        make_samples(3, 2, np.float32(0), transform, value_padding=0)


@pytest.mark.parametrize("bad", [-0.1, 1.01, float("nan")])
def test_parameters_outside_their_range_are_named(bad):
    with pytest.raises(ValueError, match=r"EstimateAdvantage: discount: expected .*\[0, 1\], got"):
        EstimateAdvantage(bad, 0.9)
    with pytest.raises(ValueError, match=r"EstimateAdvantage: gae_lambda: expected .*, got"):
        EstimateAdvantage(0.9, bad)
    with pytest.raises(ValueError, match=r"DiscountedReturns: discount: expected .*, got"):
        DiscountedReturns(bad)


@pytest.mark.parametrize("bad", [None, "0.9", [0.9]])
def test_parameters_of_another_type_are_named(bad):
    message = f"discount: expected a number in [0, 1], got {bad!r}"
    with pytest.raises(TypeError, match=re.escape(message)):
        EstimateAdvantage(bad, 0.9)
