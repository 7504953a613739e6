"""RunningMeanStd against numpy over everything at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel.transforms import RunningMeanStd


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(0, 7), min_size=1, max_size=6),
    shape=st.sampled_from([(), (1,), (3,), (2, 3)]),
    masked=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64, np.uint8]),
)
def test_equals_numpy_over_the_concatenated_batches(seed, sizes, shape, masked, dtype):
    rng = np.random.default_rng(seed)
    statistics = RunningMeanStd(shape)
    kept = []
    for size in sizes:
        batch = (rng.normal(50, 9, (size, *shape))).astype(dtype)
        mask = rng.random(size) < 0.5 if masked else None
        statistics.update(batch, mask)
        kept.append(batch if mask is None else batch[mask])
    everything = np.concatenate(kept).astype(np.float64)
    assert statistics.count == len(everything)
    if len(everything):
        np.testing.assert_allclose(statistics.mean, everything.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(statistics.var, everything.var(axis=0), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(statistics.std, everything.std(axis=0), rtol=1e-9, atol=1e-5)


def test_starts_as_mean_zero_and_deviation_one():
    statistics = RunningMeanStd((2,))
    assert statistics.mean.tolist() == [0.0, 0.0]
    assert statistics.std.tolist() == [1.0, 1.0]
    statistics.update(np.ones((3, 2)), np.zeros(3, bool))
    assert (statistics.count, statistics.std.tolist()) == (0, [1.0, 1.0])


def test_a_large_mean_does_not_swallow_the_variance():
    rng = np.random.default_rng(0)
    batches = 1e9 + rng.normal(0, 1e-2, (20, 50))
    statistics = RunningMeanStd(())
    for batch in batches:
        statistics.update(batch)
    np.testing.assert_allclose(statistics.std, (batches - 1e9).std(), rtol=1e-5)


def test_strided_and_read_only_batches_are_taken():
    batch = np.arange(24.0, dtype=np.float32).reshape(4, 6)[:, ::2]
    batch.flags.writeable = False
    statistics = RunningMeanStd((3,))
    statistics.update(batch)
    np.testing.assert_allclose(statistics.mean, batch.mean(axis=0))


def test_state_round_trip_continues_alike_and_holds_copies():
    rng = np.random.default_rng(1)
    batches = rng.normal(size=(3, 5, 2))
    original = RunningMeanStd((2,))
    original.update(batches[0])
    state = original.state()
    original.update(batches[1])
    restored = RunningMeanStd((2,))
    restored.load_state(state)
    restored.update(batches[1])
    assert restored.mean.tolist() == original.mean.tolist()
    assert restored.var.tolist() == original.var.tolist()
    assert restored.count == original.count == 10


def test_wrong_arguments_are_named_and_change_nothing():
    statistics = RunningMeanStd((2,), "heights")
    statistics.update(np.eye(2))
    before = statistics.state()
    with pytest.raises(ValueError, match=r"heights: batch: expected shape \[N, \*\(2,\)\], got"):
        statistics.update(np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"heights: mask: expected bool \(4,\), got int64 \(4,\)"):
        statistics.update(np.zeros((4, 2)), np.zeros(4, np.int64))
    with pytest.raises(ValueError, match=r"heights: mask: expected bool \(4,\), got bool \(3,\)"):
        statistics.update(np.zeros((4, 2)), np.zeros(3, bool))
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="heights: batch: expected finite numbers"):
            statistics.update(np.full((4, 2), bad))
    with pytest.raises(ValueError, match=r"heights: state: expected shape \(2,\), got \(3,\)"):
        statistics.load_state(RunningMeanStd((3,)).state())
    after = statistics.state()
    assert all(np.array_equal(before[key], after[key]) for key in before)
