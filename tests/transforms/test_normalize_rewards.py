"""NormalizeRewards against a plain loop over environments and steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transform_samples import make_samples

from parllel.transforms import NormalizeRewards


class Reference:
    """All returns ever seen in a list, in Python floats."""

    def __init__(self, B, discount):
        self.running, self.discount, self.seen = [0.0] * B, discount, []

    def normalized(self, reward, done, valid, clip, epsilon):
        for b in range(reward.shape[1]):
            for t in range(reward.shape[0]):
                if valid[t, b]:
                    self.running[b] = self.discount * self.running[b] + float(reward[t, b])
                    self.seen.append(self.running[b])
                    if done[t, b]:
                        self.running[b] = 0.0
        std = np.sqrt(np.var(self.seen) + epsilon) if self.seen else np.sqrt(1 + epsilon)
        return np.clip(reward / std, -clip, clip)


def fill(samples, seed, T, B, with_valid=False):
    rng = np.random.default_rng(seed)
    np.asarray(samples.env.reward)[...] = rng.normal(1, 4, (T, B))
    np.asarray(samples.env.done)[...] = rng.random((T, B)) < 0.2
    valid = rng.random((T, B)) < 0.7 if with_valid else np.ones((T, B), bool)
    if with_valid:
        np.asarray(samples.env.valid)[...] = valid
    return np.asarray(samples.env.reward).copy(), np.asarray(samples.env.done).copy(), valid


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 4),
    T=st.integers(1, 9),
    B=st.integers(1, 4),
    discount=st.sampled_from([0.0, 0.9, 1.0]),
    with_valid=st.booleans(),
)
def test_equals_the_reference_across_batches(seed, T, B, discount, with_valid):
    transform = NormalizeRewards(discount, clip=1.2, epsilon=1e-4)
    samples = make_samples(T, B, np.float32(0), transform, valid=with_valid)
    reference = Reference(B, discount)
    for batch in range(3):
        reward, done, valid = fill(samples, seed + batch, T, B, with_valid)
        transform.transform_batch(samples)
        expected = reference.normalized(reward, done, valid, 1.2, 1e-4)
        found = np.asarray(samples.env.normalized_reward)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(np.asarray(samples.env.reward), reward)
    if reference.seen:
        np.testing.assert_allclose(transform.stats["mean"], np.mean(reference.seen), atol=1e-9)
        np.testing.assert_allclose(transform.stats["std"], np.std(reference.seen), atol=1e-9)


def test_what_lies_after_an_early_end_leaks_nothing():
    transform = NormalizeRewards(1.0)
    samples = make_samples(4, 1, np.float32(0), transform, valid=True)
    np.asarray(samples.env.reward)[:, 0] = [1.0, 2.0, np.nan, 1e30]
    np.asarray(samples.env.done)[:, 0] = [False, True, False, False]
    np.asarray(samples.env.valid)[:, 0] = [True, True, False, False]
    transform.transform_batch(samples)
    assert transform.state()["carried"].tolist() == [0.0]
    assert transform.stats == {"mean": 2.0, "std": 1.0}  # of 1 and 3


def test_the_state_before_the_first_batch_can_be_taken_back():
    transform = NormalizeRewards(0.9)
    transform.load_state(NormalizeRewards(0.9).state())
    samples = make_samples(2, 2, np.float32(0), transform)
    np.asarray(samples.env.reward)[...] = 1.0
    transform.transform_batch(samples)
    np.testing.assert_allclose(transform.state()["carried"], [1.9, 1.9])


def test_a_refused_batch_changes_nothing():
    transform = NormalizeRewards(0.9)
    samples = make_samples(3, 2, np.float32(0), transform)
    fill(samples, 0, 3, 2)
    transform.transform_batch(samples)
    before = transform.state()
    np.asarray(samples.env.reward)[1, 1] = np.inf
    with pytest.raises(ValueError, match=r"returns of env\.reward: batch: expected finite numbers"):
        transform.transform_batch(samples)
    after = transform.state()
    assert before["carried"].tolist() == after["carried"].tolist()
    assert before["statistics"]["count"] == after["statistics"]["count"]


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"NormalizeRewards: discount: expected .*, got 1\.5"):
        NormalizeRewards(1.5)
    with pytest.raises(ValueError, match="clip: expected a number above 0, got -1"):
        NormalizeRewards(0.9, clip=-1)
    with pytest.raises(ValueError, match="epsilon: expected a finite number above 0, got 0"):
        NormalizeRewards(0.9, epsilon=0)
    transform = NormalizeRewards(0.9, source="env.observation")
    with pytest.raises(ValueError, match=r"env\.observation: expected shape \[T, B\], got"):
        make_samples(2, 2, np.zeros(3, np.float32), transform)
    with pytest.raises(ValueError, match=r"no field 'env\.score'"):
        make_samples(2, 2, np.float32(0), NormalizeRewards(0.9, source="env.score"))


def test_another_number_of_environments_is_refused():
    transform = NormalizeRewards(0.9)
    make_samples(2, 2, np.float32(0), transform)
    with pytest.raises(ValueError, match=r"expected B=2 as in the last batch, .* got B=3"):
        make_samples(2, 3, np.float32(0), transform)
    other = NormalizeRewards(0.9)
    make_samples(2, 5, np.float32(0), other)
    with pytest.raises(ValueError, match=r"state: expected B=2, got \(5,\)"):
        transform.load_state(other.state())
