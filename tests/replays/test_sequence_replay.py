"""SequenceReplay draws what lists of steps in plain Python say, and its states explain every step."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sequence_model import START, Position, Setup, Writer, make_buffer, next_state, sequence_from
from test_replays_of_samplers import Sampling

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.errors import WrongStateError
from parllel.replays import SequenceReplay
from parllel.runs.state_file import load_state, save_state
from parllel.samplers import RecurrentSampler
from parllel.testing import CountingEnv
from parllel.testing.dummy_agents import RecurrentCountingAgent, fingerprint
from parllel.transforms import FinalObservations
from parllel_patterns import allocate_samples

DISCOUNT, ETA, ALPHA, EPSILON = 0.9, 0.6, 0.8, 1e-3

setups = st.builds(
    Setup,
    T=st.integers(1, 5),
    B=st.integers(1, 3),
    N=st.integers(2, 8),
    k=st.sampled_from([0, 0, 2, 3]),
    waits=st.booleans(),
    crashes=st.booleans(),
    interrupts=st.booleans(),
    own=st.booleans(),
    stores_previous=st.booleans(),
    p_end=st.sampled_from([0.0, 0.1, 0.4, 0.9]),
    seed=st.integers(0, 999),
)
lengths = st.tuples(st.integers(0, 6), st.integers(1, 7), st.integers(1, 4))


def make(
    setup: Setup, parts: tuple[int, int, int] = (2, 3, 1), **options: Any
) -> tuple[Writer, SequenceReplay]:
    warm_up, length, n_step = parts
    # Room for the sequence behind the oldest rows, which are being overwritten.
    lost = -(-max(setup.k, 1) // setup.T)
    least = lost + -(-(sum(parts) - 1) // setup.T)
    writer = Writer(replace(setup, N=max(setup.N, least)))
    options = {
        "batch_size": 12,
        "seed": setup.seed,
        "alpha": ALPHA,
        "eta": ETA,
        "epsilon": EPSILON,
        **options,
    }
    replay = SequenceReplay(
        writer.memory, warm_up=warm_up, length=length, n_step=n_step, discount=DISCOUNT, **options
    )
    return writer, replay


class Model:
    """Which sequences can be drawn, keyed by batch and column."""

    def __init__(self, writer: Writer, replay: SequenceReplay) -> None:
        self.writer, self.P = writer, replay.n_positions
        self.drawable: set[tuple[int, int]] = set()
        self._never: set[tuple[int, int]] = set()
        self.n_batches = 0

    def add(self) -> None:
        s = self.writer.setup
        new = self.n_batches
        self.n_batches += 1
        full = self.n_batches >= s.N
        # The oldest rows are overwritten, and with stacks those whose frames are.
        oldest = max(new + 1 - s.N, 0) * s.T + (max(s.k, 1) if full else 0)
        for b in range(s.B):
            if self.writer.broken[b]:
                self._never |= {(w, b) for w in range(new)} - self.drawable
            for w in range(self.n_batches):
                here = w, b
                if w * s.T < oldest:
                    self.drawable.discard(here)
                elif here not in self._never and here not in self.drawable:
                    steps = self.writer.steps[b][w * s.T :]
                    if steps[0].usable and len(sequence_from(steps)) >= self.P:
                        self.drawable.add(here)

    def positions(self, w: int, b: int) -> list[Position]:
        return sequence_from(self.writer.steps[b][w * self.writer.setup.T :])[: self.P]


def starts_of(replay: SequenceReplay, n_batches: int) -> list[tuple[int, int]]:
    """Return batch and column of each sequence that was drawn."""
    N, B = replay._stored.N, replay._stored.B
    windows, columns = np.divmod(replay._priorities.cells, B)
    batches = n_batches - 1 - (n_batches - 1 - windows) % N
    return list(zip(batches.tolist(), columns.tolist(), strict=True))


def numbers_of(drawn: Any) -> np.ndarray:
    """Return the number of the observation at each position, [P, n]."""
    return drawn.observation.reshape(*drawn.reset.shape, -1)[..., -1]


def check(drawn: Any, model: Model, starts: list[tuple[int, int]], n_step: int) -> None:
    numbers, warm_up = numbers_of(drawn), drawn.warm_up
    for i, (w, b) in enumerate(starts):
        expected = model.positions(w, b)
        state: Any = drawn.initial_rnn_state[i]
        for p, position in enumerate(expected):
            assert numbers[p, i] == position.number
            assert drawn.reset[p, i] == position.reset
            assert drawn.previous_action[p, i] == position.previous_action
            # What a network does: the states it computes are those that the agent had.
            state = (0, 0) if drawn.reset[p, i] else state
            assert tuple(state) == position.state
            state = next_state(state, numbers[p, i], drawn.previous_action[p, i])
            if position.step is not None:
                assert drawn.action[p, i] == position.step.action
        for j in range(len(drawn.valid)):
            check_return(drawn, expected, i, j, warm_up + j, n_step)


def check_return(drawn: Any, expected: list[Position], i: int, j: int, p: int, n_step: int) -> None:
    if p >= len(expected) or expected[p].step is None:
        assert not drawn.valid[j, i]
        return
    total, factor = 0.0, 1.0
    for q in range(p, p + n_step):
        step = expected[q].step
        assert step is not None
        total += factor * float(step.reward)
        factor *= DISCOUNT
        if step.terminated:
            factor = 0.0
            break
        if q + 1 == len(expected):
            # Lost with the step after it, which had been complete before.
            assert not drawn.valid[j, i]
            return
        if expected[q + 1].step is None:
            break
    assert drawn.valid[j, i]
    assert drawn.reward[j, i] == np.float32(total)
    assert drawn.discount[j, i] == np.float32(factor)
    if factor:
        # The next position holds the observation after the last of these steps, in the same episode.
        assert drawn.next_position[j, i] == q + 1
        assert expected[q + 1].number == step.following


def stored_starts(replay: SequenceReplay, n_batches: int) -> set[tuple[int, int]]:
    N, B = replay._stored.N, replay._stored.B
    values = replay._priorities.values.reshape(N, B)
    return {
        (n_batches - 1 - (n_batches - 1 - w) % N, b)
        for w, b in zip(*(x.tolist() for x in np.nonzero(values)), strict=True)
    }


@settings(max_examples=50, deadline=None)
@given(setup=setups, parts=lengths)
def test_sequences_are_those_of_a_list_of_steps(setup: Setup, parts: tuple[int, int, int]) -> None:
    writer, replay = make(setup, parts)
    model = Model(writer, replay)
    for _ in range(2 * writer.setup.N + 3):
        replay.add(writer.write_batch())
        model.add()
        stored = stored_starts(replay, model.n_batches)
        assert replay.n_stored == len(stored)
        assert stored == model.drawable
        if stored:
            drawn = replay.sample()
            starts = starts_of(replay, model.n_batches)
            assert set(starts) <= stored
            check(drawn, model, starts, replay.n_step)


@settings(max_examples=30, deadline=None)
@given(setup=setups, parts=lengths, late=st.booleans())
def test_priorities_mix_the_largest_error_with_the_mean(
    setup: Setup, parts: tuple[int, int, int], late: bool
) -> None:
    writer, replay = make(setup, parts)
    model, rng = Model(writer, replay), np.random.default_rng(setup.seed)
    priorities: dict[tuple[int, int], float] = {}
    highest, drawn = 1.0, None
    for _ in range(2 * writer.setup.N + 3):
        replay.add(writer.write_batch())
        model.add()
        if late:
            # After one batch or several, in which sequences may have been replaced.
            update = drawn is not None and rng.random() < 0.5
        priorities = {here: priorities.get(here, highest) for here in model.drawable}
        for _ in range(2):
            if not late:
                update = True
                if not replay.n_stored:
                    continue
                drawn = replay.sample()
                starts = starts_of(replay, model.n_batches)
            if update:
                errors = rng.normal(size=drawn.valid.shape).astype(np.float32)
                # Errors of positions without a step mean nothing, whatever they are.
                errors[~drawn.valid] = np.nan
                drawn.update_priorities(errors)
                for i, here in enumerate(starts):
                    sizes = np.abs(errors[:, i][drawn.valid[:, i]]).astype(np.float64)
                    error = ETA * sizes.max() + (1 - ETA) * sizes.mean() if len(sizes) else 0.0
                    if here in priorities:
                        priorities[here] = (error + EPSILON) ** ALPHA
                        highest = max(highest, priorities[here])
            found = {
                here: replay._priorities.values[
                    here[0] % replay._stored.N * replay._stored.B + here[1]
                ]
                for here in stored_starts(replay, model.n_batches)
            }
            assert found == pytest.approx(priorities)
            if late and replay.n_stored and (drawn is None or update):
                drawn = replay.sample()
                starts = starts_of(replay, model.n_batches)
                weight = np.array([priorities[here] for here in starts]) ** -0.4
                np.testing.assert_allclose(drawn.weight, weight / weight.max(), rtol=1e-5)
                update = False


def test_sequences_do_not_cross_from_one_source_to_another() -> None:
    setup = Setup(T=4, N=12, own=False, waits=False)
    writer, replay = make(setup, (2, 4, 2), batch_size=60)
    other = Writer(replace(setup, seed=1))
    other._numbers = 10_000.0
    # The batches that were added, as writer and number among its batches, and where each run of them ends.
    added: list[tuple[Writer, int]] = []
    runs = [(writer, 3), (other, 2), (writer, 1), (other, 4), (writer, 5), (other, 1), (writer, 2)]
    n_batches, ends = {id(writer): 0, id(other): 0}, []
    for one, n in runs:
        ends += [n_batches[id(one)] + n] * n
        for _ in range(n):
            added.append((one, n_batches[id(one)]))
            n_batches[id(one)] += 1
            replay.add(one.write_batch(), source=one is writer)
            if not replay.n_stored:
                continue
            drawn = replay.sample()
            for i, (w, b) in enumerate(starts_of(replay, len(added))):
                begun, first = added[w]
                steps = begun.steps[b][first * 4 : ends[w] * 4]
                expected = sequence_from(steps)[: replay.n_positions]
                assert len(expected) == replay.n_positions
                assert numbers_of(drawn)[:, i].tolist() == [one.number for one in expected]
                assert tuple(drawn.initial_rnn_state[i]) == expected[0].state


@settings(max_examples=40, deadline=None)
@given(setup=setups, parts=lengths, n_before=st.integers(0, 12))
def test_a_restored_replay_goes_on_bit_for_bit(
    setup: Setup, parts: tuple[int, int, int], n_before: int
) -> None:
    # Batches in other memory, so that two replays can be given the same ones.
    setup = replace(setup, own=False)
    writer, replay = make(setup, parts, beta_draws=9)
    _, other = make(setup, parts, beta_draws=9)
    rng = np.random.default_rng(0)
    for _ in range(n_before):
        replay.add(writer.write_batch())
        if replay.n_stored:
            replay.sample()
            replay.update_priorities(rng.normal(size=(replay.length, 12)))
    if replay.n_stored:
        replay.sample()  # its errors are given after the restart
    # Through a file, in which the large arrays stay until they are read into place.
    with tempfile.TemporaryDirectory() as folder:
        save_state(Path(folder) / "state", replay.state())
        other.load_state(load_state(Path(folder) / "state"))
    pending = bool(replay.n_stored)
    for _ in range(writer.setup.N + 2):
        errors = rng.normal(size=(replay.length, 12))
        batch = writer.write_batch()
        for one in (replay, other):
            if pending:
                one.update_priorities(errors)
            one.add(batch)
        assert other.n_stored == replay.n_stored
        assert other.beta == replay.beta
        if not replay.n_stored:
            continue
        pending = True
        mine, theirs = vars(replay.sample()), vars(other.sample())
        for name in mine.keys() - {"replay"}:
            np.testing.assert_array_equal(mine[name], theirs[name])


@pytest.mark.parametrize("sampler_first", [False, True])
@pytest.mark.parametrize("n_before", [1, 4, 6, 9])
def test_sampler_and_replay_go_on_together(
    n_before: int, sampler_first: bool, tmp_path: Path
) -> None:
    spec, parts = BatchSpec(4, 3), {"warm_up": 2, "length": 5, "n_step": 2}

    def build() -> tuple[Sampling, SequenceReplay]:
        sampling = Sampling("VectorizedCage", spec, 6, waits=True)
        options = {"batch_size": 9, "discount": 0.9, "seed": 0, "alpha": 0.9, "beta_draws": 5}
        return sampling, SequenceReplay(sampling.samples, **options, **parts)

    def follow(sampling: Sampling, replay: SequenceReplay) -> list[Any]:
        replay.add(sampling.collect())
        if not replay.n_stored:
            return [0]
        drawn = replay.sample()
        drawn.update_priorities(np.abs(drawn.reward))
        found = {name: np.array(field) for name, field in vars(drawn).items() if name != "replay"}
        return [found[name] for name in sorted(found)]

    one, replay = build()
    with one.sampler:
        for _ in range(n_before):
            follow(one, replay)
        states = [one.sampler.state(), replay.state(), one.sampler.handler.state()]
        for i, state in enumerate(states):
            save_state(tmp_path / str(i), state)
        other, restored = build()
        with other.sampler:
            other.sampler.handler.load_state(load_state(tmp_path / "2"))
            order = [(other.sampler, "0"), (restored, "1")]
            for part, name in order if sampler_first else order[::-1]:
                part.load_state(load_state(tmp_path / name))
            for _ in range(9):
                for a, b in zip(follow(one, replay), follow(other, restored), strict=True):
                    np.testing.assert_array_equal(a, b)


class _Deterministic(RecurrentCountingAgent):
    """Its actions follow from what it has seen, and from its state."""

    def _draw(self, T: int, B: int, seed: int | None = None) -> Any:
        return np.zeros((T, B), np.int32)


@pytest.mark.parametrize("stores_previous", [True, False])
@pytest.mark.parametrize("cage", [VectorizedCage, partial(SynchronizedProcessCage, n_workers=2)])
def test_stored_states_explain_the_actions_of_a_sampler(cage: Any, stores_previous: bool) -> None:
    spec = BatchSpec(5, 4)
    lengths = [(1, 4, 13), (7,), (2, 20), (5, 9, 3)]
    envs = [
        partial(CountingEnv, lengths=one, end=end)
        for one, end in zip(lengths, ["terminated", "truncated", "alternate", "both"], strict=True)
    ]
    cages = [cage(envs, reset_automatically=False, seeds=range(4))]
    handler = NumpyHandler(_Deterministic(4, n_envs=4))
    transforms = [FinalObservations()]
    samples: Any = allocate_samples(cages, spec, handler, transforms, n_batches=8)
    seen_by_replay = samples
    if not stores_previous:
        info = samples.agent.agent_info._asdict()
        del info["prev_action"]
        node = type(samples.agent.agent_info)(**info)
        seen_by_replay = samples._replace(agent=samples.agent._replace(agent_info=node))
    replay = SequenceReplay(
        seen_by_replay, batch_size=20, warm_up=3, length=9, n_step=2, discount=1.0, seed=0
    )
    with RecurrentSampler(spec, cages, handler, samples, batch_transforms=transforms) as sampler:
        n_resets = n_steps = 0
        for number in range(30):
            replay.add(sampler.collect_batch(number)[0])
            if not replay.n_stored:
                continue
            drawn = replay.sample()
            state = drawn.initial_rnn_state
            for p in range(replay.n_positions):
                state = np.where(drawn.reset[p], 0, state)
                seen = fingerprint(drawn.observation[p])
                if 3 <= p < 12:
                    valid = drawn.valid[p - 3]
                    action = (np.floor(seen + state) + drawn.previous_action[p]) % 4
                    np.testing.assert_array_equal(action[valid], drawn.action[p][valid])
                    n_steps += valid.sum()
                state = (2 * state + np.floor(seen)) % 16
            n_resets += drawn.reset.sum()
        # Batches end early where all environments wait.
        assert n_resets > 500
        assert n_steps > 3000


def test_a_draw_before_a_sequence_is_complete_is_refused() -> None:
    writer, replay = make(Setup(T=3, p_end=0.0), (2, 4, 1))
    with pytest.raises(WrongStateError, match="nothing to draw yet, with 0 rows"):
        replay.sample()
    replay.add(writer.write_batch())
    with pytest.raises(WrongStateError, match=r"no sequence of 7 positions .* is complete"):
        replay.sample()
    replay.add(writer.write_batch())
    # Six steps, and the observation after them.
    assert replay.n_stored == 2
    assert replay.sample().valid.all()


def test_uniform_draws_have_equal_weights() -> None:
    writer, replay = make(Setup(T=3, N=9), alpha=0.0, batch_size=1000)
    for _ in range(12):
        replay.add(writer.write_batch())
    drawn = replay.sample()
    drawn.update_priorities(np.random.default_rng(0).normal(size=drawn.valid.shape))
    drawn = replay.sample()
    assert (drawn.weight == 1).all()
    _, counts = np.unique(replay._priorities.cells, return_counts=True)
    # Stratified: each is drawn as often as any other, but for one at either edge.
    assert np.ptp(counts) <= 2
    assert len(counts) == replay.n_stored


def test_the_batch_is_not_moved() -> None:
    writer, replay = make(Setup(T=3, N=9))
    for _ in range(5):
        replay.add(writer.write_batch())
    addresses = [
        {
            name: leaf.ctypes.data
            for name, leaf in vars(replay.sample()).items()
            if hasattr(leaf, "ctypes")
        }
        for _ in range(3)
    ]
    assert addresses[0] == addresses[1] == addresses[2]
    assert len(addresses[0]) == 10


def test_errors_that_cannot_be_priorities_are_refused() -> None:
    writer, replay = make(Setup(T=3, N=9, p_end=0.0), (1, 3, 1))
    for _ in range(3):
        replay.add(writer.write_batch())
    with pytest.raises(WrongStateError, match=r"call sample\(\) first"):
        replay.update_priorities(np.zeros((3, 12)))
    drawn = replay.sample()
    with pytest.raises(ValueError, match=r"errors: expected shape \(3, 12\), got \(12,\)"):
        drawn.update_priorities(np.zeros(12))
    with pytest.raises(ValueError, match="errors: expected finite numbers, got nan at 4"):
        drawn.update_priorities(np.where(np.arange(12) == 4, np.nan, np.ones((3, 12))))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warm_up": -1}, "warm_up: expected an int of at least 0"),
        ({"length": 0}, "length: expected an int of at least 1"),
        ({"n_step": 0}, "n_step: expected an int of at least 1"),
        ({"batch_size": 2.5}, "batch_size: expected an int of at least 1"),
        ({"discount": 1.5}, "discount: expected 0 to 1"),
        ({"eta": -0.5}, "eta: expected 0 to 1"),
        ({"alpha": -0.5}, "alpha: expected 0 or more"),
        (
            {"length": 14},
            "expected at least 7 batches of 3 rows for sequences of 18 positions .*, got 6",
        ),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    samples = make_buffer(Setup(), 6)
    arguments = {
        "batch_size": 4,
        "warm_up": 3,
        "length": 2,
        "n_step": 1,
        "discount": 0.9,
        "seed": 0,
    }
    with pytest.raises(ValueError, match=f"SequenceReplay: .*{message}"):
        SequenceReplay(samples, **{**arguments, **options})


def test_a_buffer_without_stored_states_is_refused() -> None:
    samples: Any = make_buffer(Setup(), 6)
    fields = {
        name: leaf for name, leaf in samples.agent._asdict().items() if name != "initial_rnn_state"
    }
    samples = samples._replace(agent=type(samples.agent)(**fields))
    with pytest.raises(
        ValueError, match=r"SequenceReplay: samples: agent\.initial_rnn_state is missing"
    ):
        SequenceReplay(samples, batch_size=4, warm_up=0, length=2, discount=0.9, seed=0)


def test_a_batch_without_stored_states_is_refused_and_not_added() -> None:
    writer, replay = make(Setup(own=False))
    batch: Any = writer.write_batch()
    fields = {
        name: leaf for name, leaf in batch.agent._asdict().items() if name != "initial_rnn_state"
    }
    with pytest.raises(ValueError, match="initial_rnn_state: expected leaves of shapes"):
        replay.add(batch._replace(agent=type(batch.agent)(**fields)))
    replay.add(batch)


def test_the_first_state_is_that_of_a_reset() -> None:
    writer, replay = make(Setup(p_end=0.0), (0, 2, 1))
    replay.add(writer.write_batch())
    drawn = replay.sample()
    assert (drawn.initial_rnn_state == START).all()
    assert not drawn.reset[0].any()
    assert not drawn.previous_action[0].any()
