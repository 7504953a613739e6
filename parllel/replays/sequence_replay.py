"""A replay of sequences of steps, for agents with recurrent state."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.buffers.large_array import LargeArray
from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves, buffer_map, named_map
from parllel.errors import WrongStateError
from parllel.replays.gathering import CellGather, PlaceGather
from parllel.replays.priorities import Priorities
from parllel.replays.replay import Replay, ReplayBatch
from parllel.replays.stored_rows import StoredRows, rows_of
from parllel.replays.transition_replay import check_count
from parllel.types import State, Tree

_STATE, _PREVIOUS = "agent.initial_rnn_state", "agent.agent_info.prev_action"


@dataclass(eq=False, kw_only=True)
class Sequences(ReplayBatch):
    """n sequences of P = warm_up + length + n_step positions, drawn by `SequenceReplay`.

        position      0 ... warm_up       ... warm_up + length       ... P
                      | only for the state |  learned from           |  only for the targets |

    Run the network over all positions, from `initial_rnn_state`, and set its state to zero before each
    position where `reset` is true. With values [P, n] of all positions, the targets of the `length`
    positions are

        reward + discount * value[next_position, arange(n)]

    which needs no case for the ends of episodes. Where a time limit has cut an episode, the position after
    the last step is no step: it holds the true last observation, so that its value is computed with the
    state of that moment. The next position is the first of the next episode.

    Attributes:
        warm_up: number of positions before those that are learned from.
        observation: tree, leaves [P, n, ...]; what the agent saw.
        previous_action: tree, leaves [P, n, ...]; zero where an episode begins.
        reset: [P, n] bool; whether an episode begins here. False in position 0 even then, because
            `initial_rnn_state` is the state after the reset.
        initial_rnn_state: tree, leaves [n, ...]; the state of the agent before position 0, which it
            had when it took these steps.
        action: tree, leaves [P, n, ...]; undefined where no step was taken.
        reward: [length, n] float32; the sum of `discount**i * reward[t + i]` over i < k, where k is
            `n_step`, or the number of steps to the end of the episode if that is smaller.
        discount: [length, n] float32; `discount**k`, and 0 where the episode terminated.
        next_position: [length, n] int64; the position k steps later.
        valid: [length, n] bool; where a step was taken. Leave the other positions out of the loss.
        weight: [n] float32; importance weights, 1 if the replay draws uniformly.
    """

    warm_up: int
    observation: Tree
    previous_action: Tree
    reset: NDArray[Any]
    initial_rnn_state: Tree
    action: Tree
    reward: NDArray[Any]
    discount: NDArray[Any]
    next_position: NDArray[Any]
    valid: NDArray[Any]
    weight: NDArray[Any]


class SequenceReplay(Replay):
    """Draws sequences that begin with a stored recurrent state (R2D2, Kapturowski et al. 2019).

        samples = allocate_samples(..., transforms=[FinalObservations()], n_batches=1000)
        replay = SequenceReplay(samples, batch_size=64, warm_up=40, length=80, discount=0.997, seed=0)

    A recurrent agent stores its state at the beginning of each batch, in `agent.initial_rnn_state`
    [1, B, ...]. So a sequence begins in the first row of a batch, and spans several batches. With T = 40,
    the sequences above overlap by two thirds, and each step is learned from in two of them. A sequence
    continues with the next episode where one ends, and skips rows in which no step was taken. Sequences
    whose beginning was overwritten, or whose end is not collected yet, are not drawn.

    A sequence is drawn with probability `p_i / sum_k p_k`, where (section 2.3)
    `p_i = (eta * max_t |error_t| + (1 - eta) * mean_t |error_t| + epsilon)**alpha`.

    Weights, and priorities of sequences that have not been drawn yet, are as for `PrioritizedReplay`.

    Args:
        samples: the memory, a buffer of several batches, with the fields of `FinalObservations` and of a
            recurrent agent. The previous action of row 0 is read from `agent.agent_info.prev_action` if the
            agent stores it. Otherwise it is the action before, and zero in the first batch.
        batch_size: number n of sequences that `sample` draws, with replacement.
        warm_up: number of positions that only compute the recurrent state ("burn-in"), 0 or more.
        length: number of positions to learn from.
        discount: discount factor per step, 0 to 1.
        seed: seed of the generator that draws.
        n_step: number of rewards that a target adds up.
        reward: path of the rewards, for example that of a transform that clips them.
        alpha, beta, final_beta, beta_draws, epsilon: as for `PrioritizedReplay`; with alpha=0 sequences
            are drawn uniformly.
        eta: weight of the largest error of a sequence against the mean.

    If `add` gets batches of several sources, or some are missing, no sequence goes across.

    Raises:
        TypeError: if `samples` is not a Samples.
        ValueError: for numbers out of range, or a buffer that does not fit: with too few batches, or without
            a field.
    """

    batch_class = Sequences

    def __init__(
        self,
        samples: Samples,
        *,
        batch_size: int,
        warm_up: int,
        length: int,
        discount: float,
        seed: Any,
        n_step: int = 1,
        reward: str = "env.reward",
        alpha: float = 0.0,
        beta: float = 0.4,
        final_beta: float = 1.0,
        beta_draws: int | None = None,
        epsilon: float = 1e-6,
        eta: float = 0.9,
    ) -> None:
        who = type(self).__name__
        counts = {"batch_size": batch_size, "length": length, "n_step": n_step}
        for name, value in counts.items():
            check_count(f"{who}: {name}", value)
        if isinstance(warm_up, bool) or not isinstance(warm_up, (int, np.integer)) or warm_up < 0:
            raise ValueError(f"{who}: warm_up: expected an int of at least 0, got {warm_up!r}")
        for name, number in (("discount", discount), ("eta", eta)):
            if not 0 <= number <= 1:
                raise ValueError(f"{who}: {name}: expected 0 to 1, got {number}")
        stored = self._stored = StoredRows(samples, reward=reward, who=who)
        from parllel.replays import compiled, compiled_sequences  # import numba

        self._compiled, self._code = compiled_sequences, compiled.GOES_ON
        self.samples = samples
        self.batch_size, self.n_step, self.discount = int(batch_size), int(n_step), float(discount)
        self.warm_up, self.length, self.eta = int(warm_up), int(length), float(eta)
        P, n = self.warm_up + self.length + self.n_step, self.batch_size
        self.n_positions = P
        self._check_size(who)
        info = getattr(samples.agent, "agent_info", None)
        self._has_previous = getattr(info, "prev_action", None) is not None
        self.reads = (*stored.reads, _STATE, *([_PREVIOUS] if self._has_previous else []))
        self._states = _states_of(samples, who, stored.B, stored.N)
        self._generator = np.random.default_rng(seed)
        self._priorities = Priorities(
            who,
            stored.N * stored.B,
            n,
            alpha=alpha,
            beta=beta,
            final_beta=final_beta,
            beta_draws=beta_draws,
            epsilon=epsilon,
        )
        self._source: Hashable = None
        self._make_books()
        self._make_outputs(field_at(samples, reward))

    def _make_books(self) -> None:
        stored, compiled = self._stored, self._compiled
        N, B = stored.N, stored.B
        # Previous actions before the first row of each batch, as the row before may be overwritten.
        self._previous = named_map(
            lambda leaf: np.zeros((N, B, *leaf.shape[2:]), leaf.dtype), self.samples.agent.action
        )
        self._actions = [rows_of(leaf) for _, leaf in buffer_leaves(self.samples.agent.action)]
        # Positions before each batch, and in all: a sequence is complete if it has enough of them.
        self._before: NDArray[np.int64] = np.zeros((N, B), np.int64)
        self._total: NDArray[np.int64] = np.zeros(B, np.int64)
        self._goes_on: NDArray[np.bool_] = np.zeros(B, np.bool_)
        # Batches are numbered by all that were ever added.
        self._waiting: NDArray[np.int64] = np.zeros(B, np.int64)
        self._oldest = self._n_ready = 0
        self._complete: NDArray[np.int64] = np.empty(N * B, np.int64)
        self._count, self._find_complete = compiled.count_positions, compiled.complete_starts

    def _make_outputs(self, reward: Array) -> None:
        P, n, length, samples = self.n_positions, self.batch_size, self.length, self.samples
        self._reward = rows_of(reward)
        self._windows, self._columns, self._starts, self._n_rows = (
            np.zeros(n, np.int64) for _ in range(4)
        )
        # One row for each position, and all in one as the gathers take them.
        self._rows, self._steps, self._all_columns = (np.zeros((P, n), np.int64) for _ in range(3))
        self._slots: NDArray[np.int32] = np.zeros((P, n), np.int32)
        self._observe = PlaceGather(samples.agent.observation, self._stored.last, P * n)
        self._act = CellGather(samples.agent.action, P * n)
        self._recall = CellGather(samples.agent.initial_rnn_state, n)

        def by_position(leaf: NDArray[Any]) -> NDArray[Any]:
            return leaf.reshape(P, n, *leaf.shape[1:])

        action = buffer_map(by_position, self._act.out)
        self._drawn = Sequences(
            replay=self,
            warm_up=self.warm_up,
            observation=buffer_map(by_position, self._observe.out),
            previous_action=buffer_map(np.zeros_like, action),
            reset=np.zeros((P, n), np.bool_),
            initial_rnn_state=self._recall.out,
            action=action,
            reward=np.zeros((length, n), np.float32),
            discount=np.zeros((length, n), np.float32),
            next_position=np.zeros((length, n), np.int64),
            valid=np.zeros((length, n), np.bool_),
            weight=np.ones(n, np.float32),
        )
        drawn, before = self._drawn, self._previous
        self._pairs = [
            (taken, previous, first)
            for (_, taken), (_, previous), (_, first) in zip(
                buffer_leaves(action),
                buffer_leaves(drawn.previous_action),
                buffer_leaves(before),
                strict=True,
            )
        ]

    def _check_size(self, who: str) -> None:
        stored, P = self._stored, self.n_positions
        # The first rows of the oldest batches are overwritten while the newest is stored.
        lost = -(-stored.n_overwritten // stored.T)
        if (stored.N - lost) * stored.T + 1 < P:
            least = lost + -(-(P - 1) // stored.T)
            raise ValueError(
                f"{who}: samples: expected at least {least} batches of {stored.T} rows for sequences of {P} "
                f"positions (warm_up + length + n_step), got {stored.N}; allocate_samples(..., "
                "n_batches=...) makes more"
            )

    # ------------------------------------------------------------------ what is there

    @property
    def n_stored(self) -> int:
        """Number of sequences that can be drawn now."""
        return self._n_ready

    @property
    def beta(self) -> float:
        """The exponent of the importance weights of the next draw."""
        return self._priorities.beta

    # ------------------------------------------------------------------ adding

    def add(self, samples: Samples, *, source: Hashable = None) -> None:
        """Add the batch that was just collected. See `Replay.add`."""
        stored, T, B = self._stored, self._stored.T, self._stored.B
        last = (stored.n_added - 1) % stored.R
        went_on = stored.link[last] == self._code if stored.n_added else np.zeros(B, np.bool_)
        other = source != self._source and stored.n_added > 0
        # Before the books change, so that an error leaves both as they were.
        states = self._states_in(samples)
        first, stop = stored.add(samples, source)
        self._source = source
        number, window = stored.n_added // T - 1, first // T
        for mine, theirs in zip(self._states, states, strict=True):
            if not np.shares_memory(mine[window], theirs):
                mine[window] = theirs
        continues = (stored.link[last] == self._code) & went_on & (not other)
        # No sequence crosses to steps whose recurrent state does not follow from those before.
        self._waiting[went_on & ~continues] = number
        if other:
            self._waiting[:] = number
        self._keep_previous(samples, window, last, continues)
        self._exclude_overwritten(window)
        self._before[window] = self._total
        self._goes_on[:] = continues
        self._count(stored.link, first, stop, self._goes_on, self._total)
        n = self._find_complete(
            self._before,
            self._total,
            self._goes_on,
            self._waiting,
            self._oldest,
            number + 1,
            self.n_positions,
            stored.link,
            T,
            self._complete,
        )
        if n:
            self._priorities.admit_cells(self._complete[:n])
            self._n_ready += n

    def _states_in(self, samples: Samples) -> list[NDArray[Any]]:
        """Return the initial state of a batch, leaves [B, ...]."""
        field = getattr(samples.agent, "initial_rnn_state", None)
        found = [np.asarray(leaf)[0] for _, leaf in buffer_leaves(field)]
        shapes = [state.shape[1:] for state in self._states]
        if [state.shape for state in found] != shapes:
            raise ValueError(
                f"{type(self).__name__}: {_STATE}: expected leaves of shapes {shapes}, got "
                f"{[state.shape for state in found]}"
            )
        return found

    def _keep_previous(
        self, samples: Samples, window: int, last: int, continues: NDArray[np.bool_]
    ) -> None:
        """Keep the actions before the first row of a batch."""
        tables = [table for _, table in buffer_leaves(self._previous)]
        if self._has_previous:
            stored = buffer_leaves(samples.agent.agent_info.prev_action)
            for table, (_, leaf) in zip(tables, stored, strict=True):
                table[window] = np.asarray(leaf[0])
            return
        for table, rows in zip(tables, self._actions, strict=True):
            table[window] = rows[last]
            table[window, ~continues] = 0

    def _exclude_overwritten(self, window: int) -> None:
        stored, B = self._stored, self._stored.B
        self._priorities.forget(window * B, (window + 1) * B)
        # Sequences begin in the first row of a batch.
        oldest = -(-stored.usable[0] // stored.T)
        for number in range(max(self._oldest, oldest - stored.N), oldest):
            start = (number % stored.N) * B
            values = self._priorities.values[start : start + B]
            self._n_ready -= int(np.count_nonzero(values))
            self._priorities.exclude(start, start + B)
        self._oldest = oldest

    # ------------------------------------------------------------------ drawing

    def sample(self) -> Sequences:
        """Draw `batch_size` sequences into the same arrays as before. See `Replay.sample`."""
        stored, drawn = self._stored, self._drawn
        stored.check_current()
        if not self._n_ready:
            raise WrongStateError(
                f"{type(self).__name__}: nothing to draw yet, with {stored.n_added} rows added: no "
                f"sequence of {self.n_positions} positions (warm_up + length + n_step) is complete"
            )
        windows, columns, starts, n_rows = self._windows, self._columns, self._starts, self._n_rows
        self._priorities.draw(self._generator, drawn.weight)
        np.divmod(self._priorities.cells, stored.B, windows, columns)
        np.multiply(windows, stored.T, starts)
        n_rows[:] = (stored.n_added - 1 - starts) % stored.R + 1
        self._compiled.follow_sequences(
            starts,
            columns,
            n_rows,
            stored.link,
            self._reward,
            self.warm_up,
            self.n_step,
            self.discount,
            self._rows,
            self._steps,
            self._slots,
            drawn.reset,
            drawn.reward,
            drawn.discount,
            drawn.next_position,
            drawn.valid,
        )
        self._all_columns[:] = columns
        everywhere = self._all_columns.reshape(-1)
        self._observe(self._rows.reshape(-1), everywhere, self._slots.reshape(-1))
        self._act(self._steps.reshape(-1), everywhere)
        self._recall(windows, columns)
        for taken, previous, first in self._pairs:
            previous[0] = first[windows, columns]
            previous[1:] = taken[:-1]
            previous[drawn.reset] = 0
        return drawn

    def update_priorities(self, errors: NDArray[Any]) -> None:
        """Set the priorities of the sequences that were drawn last.

        errors: [length, n], temporal-difference errors, of which the absolute values are used. Those of
            positions that are not `valid` are ignored.

        Raises:
            ValueError: for errors of another shape, or that are not finite; nothing is changed then.
            WrongStateError: if nothing was drawn yet.
        """
        found, valid = np.asarray(errors, np.float64), self._drawn.valid
        if found.shape != valid.shape:
            raise ValueError(
                f"{type(self).__name__}: errors: expected shape {valid.shape}, got {found.shape}"
            )
        # Selected, not multiplied: 0 * NaN is NaN.
        sizes = np.where(valid, np.abs(found), 0.0)
        mean = sizes.sum(axis=0) / np.maximum(valid.sum(axis=0), 1)
        self._priorities.update(self.eta * sizes.max(axis=0) + (1 - self.eta) * mean)

    # ------------------------------------------------------------------ checkpoints

    def state(self) -> State:
        """Return the stored rows, as views of the memory, and everything that decides what is drawn next."""
        return {
            "stored": self._stored.state(),
            "generator": self._generator.bit_generator.state,
            "priorities": self._priorities.state(),
            "states": [LargeArray(state) for state in self._states],
            "previous": [LargeArray(table) for _, table in buffer_leaves(self._previous)],
            "before": LargeArray(self._before),
            "total": self._total.copy(),
            "goes_on": self._goes_on.copy(),
            "waiting": self._waiting.copy(),
            "valid": self._drawn.valid.copy(),
            "oldest": self._oldest,
            "source": self._source if isinstance(self._source, (str, int)) else None,
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. See `Replay.load_state`."""
        self._stored.load_state(state["stored"])
        self._priorities.load_state(state["priorities"])
        self._generator.bit_generator.state = state["generator"]
        for mine, saved in zip(self._states, state["states"], strict=True):
            saved.read_into(mine)
        tables = [table for _, table in buffer_leaves(self._previous)]
        for table, saved in zip(tables, state["previous"], strict=True):
            saved.read_into(table)
        state["before"].read_into(self._before)
        for name in ("total", "goes_on", "waiting"):
            getattr(self, f"_{name}")[...] = state[name]
        self._drawn.valid[...] = state["valid"]
        self._oldest, self._source = int(state["oldest"]), state["source"]
        self._n_ready = int(np.count_nonzero(self._priorities.values))


def _states_of(samples: Samples, who: str, B: int, N: int) -> list[NDArray[Any]]:
    """Return the initial states of all batches, leaves [N, B, ...]. Raises ValueError without them."""
    field = getattr(samples.agent, "initial_rnn_state", None)
    if field is None:
        raise ValueError(
            f"{who}: samples: {_STATE} is missing, in which a recurrent agent stores its state at the "
            "beginning of each batch; allocate_samples adds it for agents whose attribute `recurrent` is True"
        )
    for path, leaf in buffer_leaves(field, _STATE):
        whole = isinstance(leaf, Array) and not leaf.is_view and leaf.shape[:2] == (1, B)
        if not whole or leaf.block.n_windows != N:
            raise ValueError(
                f"{who}: {path}: expected the whole field [1, {B}, ...] with {N} batches, got {leaf!r}"
            )
    return [rows_of(leaf) for _, leaf in buffer_leaves(field)]
