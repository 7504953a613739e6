"""UniformReplay draws what a list of steps in plain Python says, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_model import Model, Setup, Writer, buffer_of

from parllel.arrays import LazyFramesArray
from parllel.buffers import Field
from parllel.buffers.tree import buffer_arrays, buffer_leaves
from parllel.replays import UniformReplay
from parllel.types import BatchSpec

setups = st.builds(
    Setup,
    T=st.integers(1, 5),
    B=st.integers(1, 3),
    N=st.integers(2, 5),
    layout=st.sampled_from(["array", "dict", "tuple"]),
    zeros=st.booleans(),
    k=st.sampled_from([0, 0, 1, 2, 3, 4]),
    valid=st.booleans(),
    own=st.booleans(),
    interrupts=st.booleans(),
    p_end=st.sampled_from([0.0, 0.1, 0.4, 0.9]),
    seed=st.integers(0, 999),
)


def fitting(setup: Setup, n_step: int, data: Any) -> Setup:
    """Return the setup with a padding, and with room for `n_step` and its stacks."""
    least = max(setup.k, 1) + n_step
    n = max(setup.N, -(-least // setup.T))
    return replace(setup, N=n, padding=data.draw(st.integers(1, setup.T)))


def make(setup: Setup, n_step: int, batch_size: int = 1000) -> tuple[Writer, UniformReplay]:
    writer = Writer(setup, Model(setup, n_step, 0.9))
    replay = UniformReplay(
        writer.memory, batch_size=batch_size, discount=0.9, n_step=n_step, seed=setup.seed
    )
    return writer, replay


def leaves(tree: Any) -> list[np.ndarray]:
    return [leaf for _, leaf in buffer_leaves(tree)]


def check(writer: Writer, replay: UniformReplay) -> None:
    """Draw many transitions, and compare each with the model."""
    model = writer.model
    drawable = model.drawable()
    assert replay.n_stored == len(drawable)
    if not drawable:
        return
    drawn = replay.sample()
    observation, following = leaves(drawn.observation), leaves(drawn.next_observation)
    action = leaves(drawn.action)
    numbers = observation[0].reshape(replay.batch_size, -1)[:, -1]
    # So many draws of so few cells leave none out.
    assert set(numbers.tolist()) == set(drawable)
    assert (drawn.weight == 1).all()
    # What the model says of each cell, in the order of the draws.
    order = sorted(drawable)
    at = np.searchsorted(np.array(order), numbers)
    cells = [drawable[number] for number in order]
    steps = [model.steps[b][a] for a, b in cells]
    outcomes = [model.transition(a, b) for a, b in cells]
    np.testing.assert_array_equal(drawn.reward, np.array([one[0] for one in outcomes])[at])
    np.testing.assert_array_equal(drawn.discount, np.array([one[1] for one in outcomes])[at])
    for leaf in action:
        np.testing.assert_array_equal(leaf, np.array([step.action for step in steps])[at])
    seen = np.stack([step.observation for step in steps])[at]
    counts = np.array([one[2] is not None for one in outcomes])[at]
    after = np.stack([seen[0] if one[2] is None else one[2] for one in outcomes])[at]
    for leaf, leaf_after in zip(observation, following, strict=True):
        n = leaf.shape[-1]
        np.testing.assert_array_equal(leaf, seen[..., :n])
        np.testing.assert_array_equal(leaf_after[counts], after[counts][..., :n])


def fill(writer: Writer, replay: UniformReplay, n_batches: int) -> None:
    """Add batches, and check what can be drawn after each."""
    for _ in range(n_batches):
        replay.add(writer.write_batch())
        check(writer, replay)


@settings(max_examples=50, deadline=None)
@given(setup=setups, n_step=st.integers(1, 6), data=st.data())
def test_draws_what_a_list_of_steps_would(setup, n_step, data):
    setup = fitting(setup, n_step, data)
    writer, replay = make(setup, n_step)
    fill(writer, replay, 3 * setup.N + 1)
    # Slots of rows that were overwritten are used again.
    table = replay._stored.last
    assert table.n_used == int((replay._stored.link >= 0).sum())


@settings(max_examples=40, deadline=None)
@given(setup=setups, n_step=st.integers(1, 4), data=st.data())
def test_a_restored_replay_goes_on_bit_for_bit(setup, n_step, data):
    setup = fitting(setup, n_step, data)
    writer, replay = make(setup, n_step, 20)
    n_before = data.draw(st.integers(0, 2 * setup.N))
    for _ in range(n_before):
        replay.add(writer.write_batch())
    if replay.n_stored:
        replay.sample()
    _, other = make(setup, n_step, 20)
    other.load_state(replay.state())
    for number in range(n_before, n_before + setup.N + 2):
        batch = writer.write_batch()
        replay.add(batch)
        if setup.own:
            write_rows(other.samples, batch, rotate=number > 0)
        other.add(other.samples if setup.own else batch)
        assert other.n_stored == replay.n_stored
        if replay.n_stored:
            for one, two in zip(_drawn(replay), _drawn(other), strict=True):
                np.testing.assert_array_equal(one, two)


def write_rows(samples: Any, batch: Any, *, rotate: bool) -> None:
    """Write a batch into a buffer as the sampler does that was restored with it."""
    for mine, theirs in zip(buffer_arrays(samples), buffer_arrays(batch), strict=True):
        if rotate:
            mine.rotate()
        assert mine.block.window == theirs.block.window
        n = len(theirs) + min(theirs.padding, 1)
        if isinstance(mine, LazyFramesArray):
            mine[:n] = np.asarray(theirs[:n])
        else:
            np.asarray(mine[:n])[...] = np.asarray(theirs[:n])


@pytest.mark.parametrize("k", [0, 1, 3])
def test_the_check_finds_an_oldest_row_that_is_drawn(k, monkeypatch):
    setup = Setup(T=3, B=2, N=3, k=k, p_end=0.1)
    for n_excluded in range(max(k, 1)):
        writer, replay = make(setup, 1)
        monkeypatch.setattr(replay._stored, "n_overwritten", n_excluded)
        with pytest.raises(AssertionError, match="assert"):
            fill(writer, replay, 5)


def _drawn(replay: UniformReplay) -> list[np.ndarray]:
    drawn = replay.sample()
    parts = drawn.observation, drawn.next_observation, drawn.action
    return [drawn.reward, drawn.discount, drawn.weight, *(x for p in parts for x in leaves(p))]


@pytest.mark.parametrize("valid", [False, True])
def test_all_transitions_are_equally_likely(valid):
    setup = Setup(T=5, B=3, N=4, valid=valid)
    writer, replay = make(setup, 1, 20_000)
    for _ in range(6):
        replay.add(writer.write_batch())
    numbers = replay.sample().observation[:, -1]
    _, counts = np.unique(numbers, return_counts=True)
    assert len(counts) == replay.n_stored
    expected = 20_000 / replay.n_stored
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # Its mean is n - 1 and its variance 2 (n - 1): five standard deviations.
    assert chi_square < replay.n_stored - 1 + 5 * (2 * replay.n_stored) ** 0.5


@pytest.mark.parametrize("frame", [(), (2,), (3,), (4,), (3, 5)])
def test_frames_of_any_number_of_bytes(frame):
    """Cells are copied in words, whose size depends on that of a frame."""
    spec, cell = BatchSpec(2, 1), np.zeros((3, *frame), np.uint8)
    samples = buffer_of(spec, Field(cell, padding=1, frames=3), Field(cell), 4)
    replay = UniformReplay(samples, batch_size=100, discount=0.9, seed=0)
    rng, frames = np.random.default_rng(0), [np.zeros(frame, np.uint8)] * 3
    stacks = []
    for number in range(6):
        for t in range(1 if number else 0, 3):
            frames.append(rng.integers(1, 255, frame, np.uint8))
            if number and t == 1:
                for array in buffer_arrays(samples):
                    array.rotate()
            samples.agent.observation[t, 0] = np.stack(frames[-3:])
            stacks.append(np.stack(frames[-3:]).tobytes())
        replay.add(samples)
    drawn = replay.sample()
    # The newest stack is only a next observation, the oldest three of eight are overwritten.
    assert {one.tobytes() for one in drawn.observation} <= set(stacks[-6:-1])
    for one, two in zip(drawn.observation, drawn.next_observation, strict=True):
        assert stacks.index(two.tobytes()) == stacks.index(one.tobytes()) + 1
