from __future__ import annotations

import math
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel.agents.small_policy import SmallPolicy
from parllel.arrays import LazyFramesArray
from parllel.buffers import Field, NamedTuple, allocate, insert_field
from parllel.errors import WrongStateError
from parllel.testing.transform_samples import allocate_numbers
from parllel.types import BatchSpec

T = 3
UNWRITTEN = -7


def make_samples(B, *, observation, action, info=True):
    """Allocate a batch; `observation` and `action` are cells, and observations are drawn."""
    zero = np.float32(0)
    names = {"value": Field(zero, padding=1), "log_prob": zero} if info is True else info
    samples = allocate_numbers(
        BatchSpec(T, B),
        observation=Field(observation, padding=1, dtype=observation.dtype),
        action=Field(action, dtype=action.dtype),
        agent_info=None if names is None else NamedTuple(**names),
    )
    rng = np.random.default_rng(0)
    for t in range(T):
        samples.env.observation[t] = 3 * rng.random((B, *observation.shape))
    samples.agent.action[:] = UNWRITTEN
    return insert_field(samples, "agent.observation", samples.env.observation)


def draw_layers(rng, sizes):
    return [
        (
            rng.normal(size=(m, n)).astype(np.float32) / np.float32(math.sqrt(n)),
            rng.normal(size=m).astype(np.float32),
        )
        for n, m in pairwise(sizes)
    ]


def network(layers, x):
    """Compute the layers in double precision."""
    for i, (weight, bias) in enumerate(layers):
        x = x @ weight.astype(np.float64).T + bias
        if i < len(layers) - 1:
            x = np.tanh(x)
    return x


class Setup:
    """A policy with parameters and noise, bound to samples."""

    def __init__(
        self,
        *,
        n_inputs=4,
        hidden=(8,),
        nvec=(3,),
        shape=(),
        B=5,
        seed=0,
        observation=None,
        scale=1.0,
        **samples,
    ):
        rng = np.random.default_rng(seed)
        n_outputs = math.prod(shape) if nvec is None else sum(nvec)
        sizes, critic_sizes = [n_inputs, *hidden, n_outputs], [n_inputs, *hidden, 1]
        self.policy, self.critic = draw_layers(rng, sizes), draw_layers(rng, critic_sizes)
        self.discrete = nvec is not None
        self.log_std = rng.normal(size=shape).astype(np.float32)
        self.small = SmallPolicy(sizes, critic_sizes, nvec=nvec, action_shape=shape)
        if observation is None:
            observation = np.zeros(n_inputs, np.float32)
        action = np.zeros(shape, np.float32 if nvec is None else np.int64)
        self.samples = make_samples(B, observation=observation, action=action, **samples)
        self.noise = scale * rng.gumbel(size=(T, B, n_outputs)).astype(np.float32)
        self.copy_parameters()
        self.small.bind(self.samples)

    def copy_parameters(self):
        self.small.set_parameters(
            self.policy,
            self.critic,
            None if self.discrete else self.log_std,
        )

    def observed(self, t):
        rows = np.asarray(self.samples.agent.observation)[t]
        return rows.reshape(len(rows), -1).astype(np.float64)

    def expected(self, t):
        return network(self.policy, self.observed(t)), network(self.critic, self.observed(t))[:, 0]


def written(samples):
    info = samples.agent.agent_info
    fields = (samples.agent.action, info.value, info.log_prob)
    return [np.array(field) for field in fields]


hidden_sizes = st.lists(st.integers(1, 40), max_size=3)


@settings(max_examples=40)
@given(st.data(), hidden_sizes, st.integers(1, 20), st.integers(1, 40), st.integers(0, 99))
def test_choices_are_those_of_a_plain_loop(data, hidden, n_inputs, B, seed):
    nvec = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    shape = (len(nvec),)
    setup = Setup(n_inputs=n_inputs, hidden=hidden, nvec=nvec, shape=shape, B=B, seed=seed)
    setup.small.start_batch(setup.noise)
    setup.small.step(1, slice(0, B))
    action, value, log_prob = written(setup.samples)
    logits, values = setup.expected(1)
    np.testing.assert_allclose(value[1], values, rtol=1e-5, atol=3e-6)
    total, offset = np.zeros(B), 0
    for i, n in enumerate(nvec):
        part = logits[:, offset : offset + n]
        noisy = part + setup.noise[1, :, offset : offset + n]
        chosen = action[1, :, i]
        # The largest sum, or one that no rounding can tell from it.
        assert (noisy[np.arange(B), chosen] >= noisy.max(axis=1) - 1e-5).all()
        shares = np.exp(part) / np.exp(part).sum(axis=1, keepdims=True)
        total += np.log(shares[np.arange(B), chosen])
        offset += n
    np.testing.assert_allclose(log_prob[1], total, rtol=1e-5, atol=1e-5)
    assert (action[[0, 2]] == UNWRITTEN).all()


@settings(max_examples=40)
@given(
    st.sampled_from([(), (1,), (3,), (2, 2)]),
    hidden_sizes,
    st.integers(1, 20),
    st.integers(1, 40),
    st.integers(0, 99),
)
def test_normal_actions_are_those_of_a_plain_loop(shape, hidden, n_inputs, B, seed):
    setup = Setup(n_inputs=n_inputs, hidden=hidden, nvec=None, shape=shape, B=B, seed=seed)
    setup.small.start_batch(setup.noise.reshape(T, B, *shape))
    setup.small.step(1, slice(0, B))
    action, value, log_prob = written(setup.samples)
    mean, values = setup.expected(1)
    std = np.exp(setup.log_std.astype(np.float64)).reshape(-1)
    drawn = mean + std * setup.noise[1]
    density = np.exp(-0.5 * setup.noise[1].astype(np.float64) ** 2) / (std * math.sqrt(2 * math.pi))
    np.testing.assert_allclose(value[1], values, rtol=1e-5, atol=3e-6)
    np.testing.assert_allclose(action[1], drawn.reshape(B, *shape), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(log_prob[1], np.log(density).sum(axis=1), rtol=1e-4, atol=1e-4)


def test_tanh_is_right_to_some_roundings_everywhere():
    from parllel.arrays.compiled_policy import tanh_in_place

    edges = [0.0, 1e-45, 1e-30, 1e-8, 8.9999, 9.0, 9.0001, 1e30, np.inf]
    x = np.concatenate([np.linspace(-12, 12, 1_000_001), edges, np.negative(edges), [np.nan]])
    x = x.astype(np.float32)
    expected = np.tanh(x.astype(np.float64))
    y = x.copy()
    tanh_in_place(y)
    assert np.isnan(y[-1])
    np.testing.assert_allclose(y[:-1], expected[:-1], rtol=5e-7, atol=1e-45)


@pytest.mark.parametrize(
    "observation",
    [
        np.zeros((2, 3, 2), np.uint8),
        np.zeros(12, np.float64),
        np.zeros((12, 1), np.int64),
        np.zeros(12, np.bool_),
    ],
    ids=lambda cell: f"{cell.dtype}{cell.shape}",
)
@pytest.mark.few(1)
def test_observations_are_cast_and_flattened(observation):
    setup = Setup(n_inputs=12, observation=observation)
    setup.small.start_batch(setup.noise)
    setup.small.step(0, slice(0, 5))
    np.testing.assert_allclose(
        written(setup.samples)[1][0], setup.expected(0)[1], rtol=1e-5, atol=1e-6
    )
    assert np.any(setup.observed(0))


@pytest.mark.parametrize("kind", [{"nvec": (4,)}, {"nvec": None, "shape": (3,)}], ids=str)
def test_groups_of_columns_do_not_change_a_bit(kind):
    whole, parts = (Setup(B=37, hidden=(19, 8), n_inputs=11, **kind) for _ in range(2))
    groups = [slice(20, 37), slice(0, 1), slice(1, 20)]
    for setup in (whole, parts):
        setup.small.start_batch(setup.noise)
    for t in range(T):
        whole.small.step(t, slice(None))
        for group in groups:
            parts.small.step(t, group)
    for mine, theirs in zip(written(whole.samples), written(parts.samples), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_other_columns_and_rows_are_left_alone():
    setup = Setup(B=20)
    info = setup.samples.agent.agent_info
    info.value[:] = info.log_prob[:] = UNWRITTEN
    setup.small.start_batch(setup.noise)
    setup.small.step(1, slice(3, 9))
    for field in written(setup.samples):
        assert (field[1, 3:9] != UNWRITTEN).all()
        field[1, 3:9] = UNWRITTEN
        assert (field == UNWRITTEN).all()


@pytest.mark.parametrize(
    "info", [None, {"value": np.float32(0)}, {"log_prob": np.float64(0)}], ids=str
)
def test_infos_that_are_not_in_the_batch_are_not_written(info):
    setup, full = Setup(info=info), Setup()
    for one in (setup, full):
        one.small.start_batch(one.noise)
        one.small.step(2, slice(0, 5))
    np.testing.assert_array_equal(setup.samples.agent.action, full.samples.agent.action)
    for name in info or ():
        mine = getattr(setup.samples.agent.agent_info, name)
        np.testing.assert_array_equal(mine, getattr(full.samples.agent.agent_info, name))


def test_values_are_written_after_the_last_row():
    setup = Setup(B=20)
    info = setup.samples.agent.agent_info
    info.value[: T + 1] = UNWRITTEN
    setup.samples.env.observation[T] = np.arange(80, dtype=np.float32).reshape(20, 4) / 40
    setup.small.start_batch(setup.noise)
    setup.small.write_values(T, slice(3, 20))
    observation = np.asarray(setup.samples.env.observation[T]).astype(np.float64)
    expected = network(setup.critic, observation)[:, 0]
    np.testing.assert_allclose(info.value[T, 3:], expected[3:], rtol=1e-5, atol=1e-6)
    assert (np.asarray(info.value[T, :3]) == UNWRITTEN).all()
    assert (np.asarray(info.value) == UNWRITTEN).all()
    with pytest.raises(IndexError, match="row: expected 0 to 3, got 4"):
        setup.small.write_values(T + 1, slice(0, 20))
    without = Setup(info=None)
    without.small.write_values(T, slice(0, 5))  # nowhere to write to


def test_parameters_are_copied_when_they_are_set():
    setup = Setup()
    setup.small.start_batch(setup.noise)
    setup.small.step(0, slice(0, 5))
    before = written(setup.samples)[1][0]
    setup.critic[-1][1][:] += 1
    setup.small.step(0, slice(0, 5))
    np.testing.assert_array_equal(written(setup.samples)[1][0], before)
    setup.copy_parameters()
    setup.small.step(0, slice(0, 5))
    np.testing.assert_allclose(written(setup.samples)[1][0], before + 1, rtol=1e-5)


def test_parameters_that_are_not_numbers_show():
    setup = Setup()
    setup.policy[0][0][:] = np.nan
    setup.copy_parameters()
    setup.small.start_batch(setup.noise)
    setup.small.step(0, slice(0, 5))
    action, value, log_prob = written(setup.samples)
    assert np.isnan(log_prob[0]).all()
    assert np.isfinite(value[0]).all()
    assert (action[0] == 0).all()


def test_steps_allocate_nothing():
    setup = Setup(B=16, hidden=(64, 64))
    setup.small.start_batch(setup.noise)
    columns = slice(0, 16)
    for t in range(T):
        setup.small.step(t, columns)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(200):
            setup.small.step(1, columns)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Less than the hidden units of one observation.
    assert after - before < 256
    assert peak - before < 2048


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([4], [4, 1], {"nvec": (3,)}), r"policy_sizes: expected .* 3 outputs last, got \[4\]"),
        (([4, 2], [4, 1], {"nvec": (3,)}), r"3 outputs last, got \[4, 2\]"),
        (([4, 0, 3], [4, 1], {"nvec": (3,)}), r"sizes of 1 or more.* got \[4, 0, 3\]"),
        (([4, 3], [4, 2], {"nvec": (3,)}), r"critic_sizes: .* 1 outputs last, got \[4, 2\]"),
        (([4, 3], [5, 1], {"nvec": (3,)}), "critic_sizes: expected 4 inputs .* got 5"),
        (([4, 3], [4, 1], {"nvec": (1, 2)}), r"action_shape: expected 2 numbers, got \(\)"),
        (([4, 3], [4, 1], {"nvec": None, "action_shape": (2,)}), r"2 outputs last, got \[4, 3\]"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(arguments, message):
    policy, critic, options = arguments
    with pytest.raises(ValueError, match=message):
        SmallPolicy(policy, critic, **{"action_shape": (), **options})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"observation": np.zeros(5, np.float32)}, "agent.observation: expected 4 numbers, got 5"),
        ({"observation": np.zeros(4, np.float16)}, "agent.observation: .* float32.* got float16"),
        (
            {"action": np.zeros(2, np.int64)},
            r"agent.action: expected cells of shape \(\), got \(2,\)",
        ),
        ({"action": np.zeros((), np.float32)}, "agent.action: expected one of int64.* got float32"),
        (
            {"info": {"value": np.zeros(1, np.float32)}},
            r"agent_info.value: .* shape \(\), got \(1,\)",
        ),
        ({"info": {"value": np.int64(0)}}, "agent_info.value: expected one of float32"),
        ({"info": {"speed": np.float32(0)}}, "expected no fields but .* got 'speed'"),
    ],
)
def test_batches_that_do_not_fit_are_refused(changed, message):
    small = SmallPolicy([4, 3], [4, 1], nvec=(3,), action_shape=())
    cells = {"observation": np.zeros(4, np.float32), "action": np.zeros((), np.int64), **changed}
    with pytest.raises(ValueError, match=message):
        small.bind(make_samples(2, **cells))


def test_other_observations_are_refused():
    setup = Setup()
    shorter = allocate(Field(np.zeros(4, np.float32)), BatchSpec(T - 1, 5))
    tree = NamedTuple(left=setup.samples.env.observation)
    frames = LazyFramesArray((T, 5, 2, 2), np.float32)
    for observation, message in (
        (tree, "agent.observation: expected one Array, got NamedTuple"),
        (frames, "agent.observation: expected .* rows in memory, got a LazyFramesArray"),
        (shorter, r"agent.observation: expected \[T, B\] = \(3, 5\), got \(2, 5\)"),
    ):
        agent = setup.samples.agent._replace(observation=observation)
        with pytest.raises(ValueError, match=message):
            setup.small.bind(setup.samples._replace(agent=agent))


def test_what_comes_at_the_wrong_moment_is_refused():
    small = SmallPolicy([4, 3], [4, 1], nvec=(3,), action_shape=())
    with pytest.raises(WrongStateError, match="no batch is bound; call bind"):
        small.start_batch(np.zeros((T, 5, 3), np.float32))
    setup = Setup()
    with pytest.raises(WrongStateError, match="call start_batch first"):
        setup.small.step(0, slice(0, 5))
    setup.small.start_batch(setup.noise)
    setup.small.bind(setup.samples)
    with pytest.raises(WrongStateError, match="call start_batch first"):
        setup.small.step(0, slice(0, 5))


def test_noise_rows_and_columns_outside_of_the_batch_are_refused():
    setup = Setup()
    for noise in (setup.noise[:2], setup.noise[:, :4], setup.noise[..., :2]):
        with pytest.raises(ValueError, match=r"noise: expected float32 of shape \(3, 5, 3\), got"):
            setup.small.start_batch(noise)
    with pytest.raises(ValueError, match=r"noise: .* got float64"):
        setup.small.start_batch(setup.noise.astype(np.float64))
    setup.small.start_batch(setup.noise)
    for t in (-1, T):
        with pytest.raises(IndexError, match=f"row: expected 0 to 2, got {t}"):
            setup.small.step(t, slice(0, 5))
    with pytest.raises(ValueError, match="columns: expected a slice without a step"):
        setup.small.step(0, slice(0, 5, 2))
