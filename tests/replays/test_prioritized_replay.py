"""PrioritizedReplay draws what a list of steps in plain Python says, as often as their priorities say."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_model import Model, Setup, Writer, number_of

from parllel.buffers.tree import buffer_leaves
from parllel.errors import WrongStateError
from parllel.replays import PrioritizedReplay
from parllel.runs.state_file import load_state, save_state

ALPHA, EPSILON = 0.7, 1e-3

setups = st.builds(
    Setup,
    T=st.integers(1, 5),
    B=st.integers(1, 3),
    N=st.integers(2, 5),
    k=st.sampled_from([0, 0, 1, 3]),
    valid=st.booleans(),
    own=st.booleans(),
    interrupts=st.booleans(),
    p_end=st.sampled_from([0.0, 0.1, 0.4, 0.9]),
    seed=st.integers(0, 999),
)


def make(setup: Setup, n_step: int = 1, batch_size: int = 40, **options: Any) -> Any:
    least = max(setup.k, 1) + n_step
    setup = replace(setup, N=max(setup.N, -(-least // setup.T)))
    writer = Writer(setup, Model(setup, n_step, 0.9))
    options = {"alpha": ALPHA, "epsilon": EPSILON, **options}
    replay = PrioritizedReplay(
        writer.memory,
        batch_size=batch_size,
        discount=0.9,
        n_step=n_step,
        seed=setup.seed,
        **options,
    )
    return writer, replay


class Priorities:
    """The priority of each transition that can be drawn, in a dict by the number of its observation."""

    def __init__(self) -> None:
        self.of: dict[float, float] = {}
        self.highest = 1.0

    def follow(self, drawable: Any) -> None:
        self.of = {number: self.of.get(number, self.highest) for number in drawable}

    def update(self, numbers: list[float], errors: np.ndarray) -> None:
        for number, error in zip(numbers, errors, strict=True):
            if number in self.of:
                self.of[number] = (abs(float(error)) + EPSILON) ** ALPHA
                self.highest = max(self.highest, self.of[number])


def numbers_of(drawn: Any) -> list[float]:
    first = next(iter(buffer_leaves(drawn.observation)))[1]
    return [number_of(one) for one in first]


def stored_priorities(replay: PrioritizedReplay, model: Model) -> dict[float, float]:
    """Return the priorities in the tree by the number of the observation, without those that are zero."""
    values = replay._priorities.values.reshape(replay._stored.R, replay._stored.B)
    found = {}
    n_rows = len(model.steps[0])
    for a in range(max(n_rows - replay._stored.R, 0), n_rows):
        for b in range(replay._stored.B):
            if values[a % replay._stored.R, b]:
                number = number_of(model.steps[b][a].observation)
                found[number] = values[a % replay._stored.R, b]
    assert np.count_nonzero(values) == len(found)
    return found


@settings(max_examples=60, deadline=None)
@given(setup=setups, n_step=st.integers(1, 5), late=st.booleans())
def test_priorities_agree_with_a_list_of_steps(setup: Setup, n_step: int, late: bool) -> None:
    writer, replay = make(setup, n_step)
    priorities, rng = Priorities(), np.random.default_rng(setup.seed)
    drawn: Any = None
    numbers: list[float] = []
    for _ in range(3 * writer.setup.N + 1):
        replay.add(writer.write_batch())
        priorities.follow(writer.model.drawable())
        if late and drawn is not None:
            # Some of what was drawn has been overwritten since, or cannot be drawn any more.
            errors = rng.normal(size=replay.batch_size).astype(np.float32)
            drawn.update_priorities(errors)
            priorities.update(numbers, errors)
        assert stored_priorities(replay, writer.model) == pytest.approx(priorities.of)
        assert replay.n_stored == len(priorities.of)
        if not priorities.of:
            continue
        drawn = replay.sample()
        numbers = numbers_of(drawn)
        assert set(numbers) <= set(priorities.of)
        weight = np.array([priorities.of[number] for number in numbers]) ** -0.4
        np.testing.assert_allclose(drawn.weight, weight / weight.max(), rtol=1e-5)
        if not late:
            errors = rng.normal(size=replay.batch_size)
            drawn.update_priorities(errors)
            priorities.update(numbers, errors)
            assert stored_priorities(replay, writer.model) == pytest.approx(priorities.of)


@settings(max_examples=60, deadline=None)
@given(setup=setups, n_step=st.integers(1, 4))
def test_drawn_transitions_agree_with_a_list_of_steps(setup: Setup, n_step: int) -> None:
    writer, replay = make(setup, n_step)
    rng = np.random.default_rng(setup.seed)
    for _ in range(2 * writer.setup.N + 1):
        replay.add(writer.write_batch())
        if not replay.n_stored:
            continue
        drawn, drawable = replay.sample(), writer.model.drawable()
        for i, number in enumerate(numbers_of(drawn)):
            reward, discount, after = writer.model.transition(*drawable[number])
            assert drawn.reward[i] == reward
            assert drawn.discount[i] == discount
            if after is not None:
                np.testing.assert_array_equal(drawn.next_observation[i], after)
        drawn.update_priorities(rng.normal(size=replay.batch_size))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_transitions_are_drawn_in_proportion_to_their_priorities(alpha: float) -> None:
    setup = Setup(T=5, B=3, N=4, valid=True)
    writer, replay = make(setup, 2, 200, alpha=alpha)
    for _ in range(6):
        replay.add(writer.write_batch())
    rng, errors = np.random.default_rng(0), dict[float, float]()
    while len(errors) < replay.n_stored:
        # The same error each time: the last of several values of one transition counts.
        drawn = replay.sample()
        for number in numbers_of(drawn):
            errors.setdefault(number, float(rng.exponential()))
        drawn.update_priorities(np.array([errors[number] for number in numbers_of(drawn)]))
    counts = dict.fromkeys(errors, 0)
    for _ in range(200):
        for number in numbers_of(replay.sample()):
            counts[number] += 1
    sizes = (np.array(list(errors.values())) + EPSILON) ** alpha
    expected = sizes / sizes.sum() * 200 * 200
    chi_square = (((np.array(list(counts.values())) - expected) ** 2) / expected).sum()
    # Its mean is n - 1 and its variance 2 (n - 1) for independent draws, less for stratified ones.
    assert chi_square < len(errors) - 1 + 5 * (2 * len(errors)) ** 0.5


@settings(max_examples=30, deadline=None)
@given(setup=setups, n_step=st.integers(1, 3), n_before=st.integers(0, 9))
def test_a_restored_replay_goes_on_bit_for_bit(setup: Setup, n_step: int, n_before: int) -> None:
    # Batches in other memory, so that two replays can be given the same ones.
    setup = replace(setup, own=False)
    writer, replay = make(setup, n_step, 20, beta_draws=30)
    _, other = make(setup, n_step, 20, beta_draws=30)
    rng = np.random.default_rng(0)
    for _ in range(n_before):
        replay.add(writer.write_batch())
        if replay.n_stored:
            replay.sample()
            replay.update_priorities(rng.normal(size=20))
    # Through a file, in which the large arrays stay until they are read into place.
    with tempfile.TemporaryDirectory() as folder:
        save_state(Path(folder) / "state", replay.state())
        other.load_state(load_state(Path(folder) / "state"))
    for _ in range(writer.setup.N + 2):
        batch = writer.write_batch()
        for one in (replay, other):
            one.add(batch)
        assert other.n_stored == replay.n_stored
        assert other.beta == replay.beta
        if not replay.n_stored:
            continue
        mine, theirs = replay.sample(), other.sample()
        for name in ("observation", "next_observation", "action", "reward", "discount", "weight"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        errors = rng.normal(size=20)
        mine.update_priorities(errors)
        theirs.update_priorities(errors)


def test_errors_can_be_given_after_a_restart() -> None:
    setup = Setup(own=False)
    writer, replay = make(setup)
    _, other = make(setup)
    replay.add(writer.write_batch())
    replay.sample()
    other.load_state(replay.state())
    errors = np.arange(replay.batch_size)
    for one in (replay, other):
        one.update_priorities(errors)
    np.testing.assert_array_equal(replay._priorities.values, other._priorities.values)


def test_beta_changes_linearly_with_draws() -> None:
    writer, replay = make(Setup(), beta=0.4, final_beta=0.8, beta_draws=4)
    replay.add(writer.write_batch())
    betas = []
    for _ in range(6):
        betas.append(replay.beta)
        replay.sample()
    assert betas == pytest.approx([0.4, 0.5, 0.6, 0.7, 0.8, 0.8])


def test_errors_that_cannot_be_priorities_are_refused() -> None:
    writer, replay = make(Setup())
    replay.add(writer.write_batch())
    with pytest.raises(WrongStateError, match=r"call sample\(\) first"):
        replay.update_priorities(np.zeros(replay.batch_size))
    drawn = replay.sample()
    before = replay._priorities.values.copy()
    for value in (np.nan, np.inf):
        errors = np.ones(replay.batch_size)
        errors[3] = value
        with pytest.raises(ValueError, match="PrioritizedReplay: errors: expected finite numbers"):
            drawn.update_priorities(errors)
    with pytest.raises(ValueError, match=r"errors: expected shape \(40,\), got \(40, 1\)"):
        drawn.update_priorities(np.ones((replay.batch_size, 1)))
    np.testing.assert_array_equal(replay._priorities.values, before)


@pytest.mark.parametrize(
    "options",
    [{"alpha": -0.1}, {"beta": -1.0}, {"final_beta": np.inf}, {"epsilon": 0.0}, {"beta_draws": 0}],
)
def test_numbers_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"PrioritizedReplay: {next(iter(options))}: expected"):
        make(Setup(), **options)


def test_a_state_of_another_batch_size_is_refused() -> None:
    writer, replay = make(Setup(own=False))
    replay.add(writer.write_batch())
    _, other = make(Setup(own=False), batch_size=10)
    with pytest.raises(ValueError, match="draws 10 at a time, got 40"):
        other.load_state(replay.state())
