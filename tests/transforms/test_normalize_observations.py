"""NormalizeObservations: what it writes, and when its statistics move."""

from __future__ import annotations

import numpy as np
import pytest
from transform_samples import make_samples, padded_rows, write_padded_rows

from parllel.arrays import LazyFramesArray
from parllel.buffers import NamedTuple, add_fields
from parllel.errors import WrongStateError
from parllel.transforms import NormalizeObservations
from parllel.types import BatchSpec

DICT = {"position": np.zeros((2, 3), np.float32), "speed": np.float32(0.0)}


def raw_rows(seed, T, B, shape=(), mean=5.0):
    return np.random.default_rng(seed).normal(mean, 3.0, (T + 1, B, *shape)).astype(np.float32)


def reference(rows, seen, clip=10.0, epsilon=1e-8):
    seen = seen.astype(np.float64)
    return np.clip((rows - seen.mean(axis=0)) / np.sqrt(seen.var(axis=0) + epsilon), -clip, clip)


def step_all(transform, samples, T, groups):
    for t in range(T + 1):
        for columns in groups:
            transform.transform_step(samples, t, columns)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3)])
def test_rows_are_normalised_by_what_earlier_batches_held(shape):
    T, B = 5, 4
    transform = NormalizeObservations(clip=1.5)
    samples = make_samples(T, B, np.zeros(shape, np.float32), transform)
    target = samples.agent.observation
    assert (target.dtype, target.shape, target.padding) == (np.float32, (T, B, *shape), 1)
    seen = np.empty((0, *shape))
    for seed in range(3):
        rows = raw_rows(seed, T, B, shape)
        write_padded_rows(samples.env.observation, rows)
        step_all(transform, samples, T, [slice(0, 1), slice(1, B)])
        expected = reference(rows, seen, 1.5) if len(seen) else np.clip(rows, -1.5, 1.5)
        np.testing.assert_allclose(padded_rows(target), expected, rtol=2e-5, atol=2e-6)
        np.testing.assert_array_equal(padded_rows(samples.env.observation), rows)
        transform.end_batch(samples)
        seen = np.concatenate([seen, rows[:-1].reshape(-1, *shape)])  # row T comes again as row 0
    np.testing.assert_allclose(transform.stats["mean"], seen.mean(axis=0))
    np.testing.assert_allclose(transform.stats["std"], seen.std(axis=0))


def test_only_the_given_cells_are_written():
    transform = NormalizeObservations()
    samples = make_samples(3, 4, np.zeros(2, np.float32), transform)
    write_padded_rows(samples.env.observation, np.ones((4, 4, 2), np.float32))
    transform.transform_step(samples, 1, slice(1, 3))
    expected = np.zeros((4, 4, 2))
    expected[1, 1:3] = 1.0
    np.testing.assert_allclose(padded_rows(samples.agent.observation), expected)
    transform.transform_step(samples, 3, slice(None))
    expected[3] = 1.0
    np.testing.assert_allclose(padded_rows(samples.agent.observation), expected)
    for t in (-1, 4):
        with pytest.raises(IndexError, match=f"no row {t} in a batch of T=3"):
            transform.transform_step(samples, t, slice(0, 4))


def test_only_valid_entries_count():
    transform = NormalizeObservations()
    samples = make_samples(6, 3, np.zeros(2, np.float32), transform, valid=True)
    rows = raw_rows(0, 6, 3, (2,))
    valid = np.random.default_rng(1).random((6, 3)) < 0.6
    rows[:-1][~valid] = np.nan  # left over from whatever was there before
    write_padded_rows(samples.env.observation, rows)
    np.asarray(samples.env.valid)[...] = valid
    transform.end_batch(samples)
    np.testing.assert_allclose(transform.stats["mean"], rows[:-1][valid].mean(axis=0), rtol=1e-6)
    assert transform.state()["env.observation"]["count"] == valid.sum()


def test_dict_observations_have_statistics_per_leaf():
    T, B = 4, 3
    transform = NormalizeObservations()
    samples = make_samples(T, B, DICT, transform)
    position, speed = raw_rows(0, T, B, (2, 3)), raw_rows(1, T, B, mean=-7.0)
    write_padded_rows(samples.env.observation.position, position)
    write_padded_rows(samples.env.observation.speed, speed)
    transform.end_batch(samples)
    step_all(transform, samples, T, [slice(0, B)])
    for name, rows in (("position", position), ("speed", speed)):
        seen = rows[:-1].reshape(-1, *rows.shape[2:]).astype(np.float64)
        written = padded_rows(getattr(samples.agent.observation, name))
        np.testing.assert_allclose(written, reference(rows, seen), rtol=2e-5, atol=2e-6)
        np.testing.assert_allclose(transform.stats[f"{name}/mean"], seen.mean(axis=0))
        np.testing.assert_allclose(transform.stats[f"{name}/std"], seen.std(axis=0))

    # Whatever the order of the fields and the kind of node, leaves meet their own statistics.
    for tree in (
        NamedTuple(position=position[2], speed=speed[2]),
        {"speed": speed[2], "position": position[2]},
    ):
        final = transform.transform_final(tree)
        assert type(final) is type(tree)
        found = final if isinstance(final, dict) else final._asdict()
        for name in DICT:
            expected = np.asarray(getattr(samples.agent.observation, name)[2])
            np.testing.assert_array_equal(found[name], expected)
    with pytest.raises(
        ValueError, match=r"expected leaves \['position', 'speed'\], got \['speed'\]"
    ):
        transform.transform_final({"speed": speed[2]})


def test_final_observations_may_be_none_and_have_a_shape():
    transform = NormalizeObservations()
    make_samples(4, 3, np.zeros((2, 2), np.float32), transform)
    given = np.ones((3, 2, 2), np.float32)
    assert transform.transform_final(given[:0]).shape == (0, 2, 2)
    with pytest.raises(ValueError, match=r"expected shape \[N, \*\(2, 2\)\], got \(3, 2\)"):
        transform.transform_final(given[:, 0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_integers_are_normalised_to_float32(dtype):
    transform = NormalizeObservations()
    samples = make_samples(5, 2, np.zeros(3, dtype), transform)
    rows = np.random.default_rng(0).integers(0, 256, (6, 2, 3)).astype(dtype)
    write_padded_rows(samples.env.observation, rows)
    transform.end_batch(samples)
    step_all(transform, samples, 5, [slice(0, 1), slice(1, 2)])
    expected = reference(rows, rows[:-1].reshape(-1, 3))
    np.testing.assert_allclose(
        padded_rows(samples.agent.observation), expected, rtol=2e-5, atol=2e-6
    )


def test_an_element_that_never_changes_becomes_zero():
    transform = NormalizeObservations()
    samples = make_samples(4, 2, np.zeros(2, np.float32), transform)
    rows = raw_rows(0, 4, 2, (2,))
    rows[..., 0] = 1234.567
    write_padded_rows(samples.env.observation, rows)
    transform.end_batch(samples)
    step_all(transform, samples, 4, [slice(0, 2)])
    assert not padded_rows(samples.agent.observation)[..., 0].any()


def test_infinite_clip_limits_nothing():
    transform = NormalizeObservations(clip=np.inf)
    samples = make_samples(2, 1, np.float32(0), transform)
    write_padded_rows(samples.env.observation, np.float32([[1e6], [-1e6], [0]]))
    step_all(transform, samples, 2, [slice(0, 1)])
    np.testing.assert_allclose(np.asarray(samples.agent.observation)[:, 0], [1e6, -1e6])


@pytest.mark.parametrize("bind_first", [True, False])
def test_state_round_trip_writes_the_same_rows(bind_first):
    original = NormalizeObservations()
    samples = make_samples(4, 3, DICT, original)
    write_padded_rows(samples.env.observation.position, raw_rows(0, 4, 3, (2, 3)))
    write_padded_rows(samples.env.observation.speed, raw_rows(1, 4, 3))
    original.end_batch(samples)
    state = original.state()
    original.transform_step(samples, 2, slice(0, 3))
    expected = np.asarray(samples.agent.observation.position[2]).copy()
    np.asarray(samples.agent.observation.position)[...] = 0.0

    restored = NormalizeObservations()
    if bind_first:
        restored.bind(samples)
    restored.load_state(state)
    restored.transform_step(samples, 2, slice(0, 3))
    np.testing.assert_array_equal(np.asarray(samples.agent.observation.position[2]), expected)
    original.end_batch(samples)
    restored.end_batch(samples)
    for name in original.stats:
        np.testing.assert_array_equal(original.stats[name], restored.stats[name])


def test_the_state_of_other_observations_is_refused():
    transform = NormalizeObservations()
    make_samples(2, 1, np.zeros(3, np.float32), transform)
    other = NormalizeObservations()
    samples = make_samples(2, 1, np.zeros(4, np.float32), other)
    with pytest.raises(ValueError, match=r"state: expected \{'': \(3,\)\}, got \{'': \(4,\)\}"):
        transform.load_state(other.state())
    fresh = NormalizeObservations()
    fresh.load_state(transform.state())
    with pytest.raises(ValueError, match=r"env\.observation: expected .*\(3,\).*, got .*\(4,\)"):
        fresh.bind(samples)


def test_another_buffer_is_noticed_and_shares_the_statistics():
    transform = NormalizeObservations()
    training = make_samples(4, 3, np.zeros(2, np.float32), transform)
    write_padded_rows(training.env.observation, raw_rows(0, 4, 3, (2,)))
    transform.end_batch(training)
    evaluation = make_samples(1, 2, np.zeros(2, np.float32), NormalizeObservations())
    write_padded_rows(evaluation.env.observation, raw_rows(2, 1, 2, (2,)))
    transform.transform_step(evaluation, 1, slice(0, 2))
    expected = transform.transform_final(padded_rows(evaluation.env.observation)[1])
    np.testing.assert_array_equal(padded_rows(evaluation.agent.observation)[1], expected)
    transform.transform_step(training, 0, slice(0, 3))
    expected = transform.transform_final(np.asarray(training.env.observation[0]))
    np.testing.assert_array_equal(np.asarray(training.agent.observation[0]), expected)


def test_stacks_that_are_stored_frame_by_frame_are_refused():
    transform = NormalizeObservations(target="agent.normalized")
    samples = make_samples(2, 3, np.zeros((4, 5), np.float32))
    samples = add_fields(samples, transform.fields(samples), BatchSpec(2, 3))
    frames = LazyFramesArray((2, 3, 4, 5), np.float32)
    samples = samples._replace(env=samples.env._replace(observation=frames))
    with pytest.raises(
        ValueError, match=r"env\.observation: .* without a copy, got a LazyFramesArray"
    ):
        transform.bind(samples)


def test_wrong_arguments_and_moments():
    with pytest.raises(ValueError, match="clip: expected a number above 0, got 0"):
        NormalizeObservations(clip=0)
    with pytest.raises(ValueError, match="epsilon: expected a finite number above 0, got inf"):
        NormalizeObservations(epsilon=np.inf)
    with pytest.raises(ValueError, match="target: expected a different field from source"):
        NormalizeObservations(target="env.observation")
    with pytest.raises(ValueError, match=r"no field 'env\.pixels'"):
        NormalizeObservations(source="env.pixels").fields(make_samples(2, 1))
    with pytest.raises(WrongStateError, match="transform_final was called before bind"):
        NormalizeObservations().transform_final(np.zeros((1, 2)))
    transform = NormalizeObservations(source="env.reward", target="env.scaled")
    with pytest.raises(ValueError, match=r"env\.reward: expected an array with padding"):
        make_samples(2, 1, np.float32(0), transform)
    transform = NormalizeObservations(target="agent.agent_info.value")
    with pytest.raises(ValueError, match=r"agent_info\.value: expected float32 .*, got"):
        transform.bind(make_samples(2, 1, np.zeros(3, np.float32)))
    broken = NormalizeObservations()
    samples = make_samples(2, 1, np.float32(0), broken)
    np.asarray(samples.env.observation)[0] = np.nan
    with pytest.raises(ValueError, match=r"env\.observation: batch: expected finite numbers"):
        broken.end_batch(samples)
