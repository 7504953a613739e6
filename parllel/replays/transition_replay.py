"""Base class of replays that draw transitions: everything but the choice of the cells."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.replays.gathering import CellGather, ObservationGather
from parllel.replays.replay import Replay, Transitions
from parllel.replays.stored_rows import StoredRows, rows_of
from parllel.types import State


class TransitionReplay(Replay):
    """Stores batches and draws Transitions of up to `n_step` steps. Subclasses choose which ones.

    Args:
        samples: the memory, a buffer of several batches, with the field of `FinalObservations`.
        batch_size: number of transitions that `sample` draws, with replacement.
        n_step: number of rewards that a transition adds up.
        discount: discount factor per step, 0 to 1.
        seed: seed of the generator that draws.
        reward: path of the rewards, for example that of a transform that clips them.

    Raises:
        TypeError: if `samples` is not a Samples.
        ValueError: for numbers out of range, or a buffer that does not fit: with one batch, fields that are
            missing, or too few rows for `n_step`.
    """

    batch_class = Transitions

    def __init__(
        self,
        samples: Samples,
        *,
        batch_size: int,
        discount: float,
        seed: Any,
        n_step: int = 1,
        reward: str = "env.reward",
    ) -> None:
        who = type(self).__name__
        check_count(f"{who}: batch_size", batch_size)
        check_count(f"{who}: n_step", n_step)
        if not 0 <= discount <= 1:
            raise ValueError(f"{who}: discount: expected 0 to 1, got {discount}")
        self._stored = StoredRows(samples, reward=reward, n_step=n_step, who=who)
        from parllel.replays import compiled  # imports numba

        self._add_up = compiled.add_up_steps
        self.samples = samples
        self.batch_size, self.n_step, self.discount = int(batch_size), int(n_step), float(discount)
        self.reads = self._stored.reads
        self._generator = np.random.default_rng(seed)
        n = self.batch_size
        self._reward = rows_of(field_at(samples, reward))
        self._observe = ObservationGather(samples.agent.observation, self._stored.last, n)
        self._act = CellGather(samples.agent.action, n)
        self._rows: NDArray[np.int64] = np.zeros(n, np.int64)
        self._columns: NDArray[np.int64] = np.zeros(n, np.int64)
        self._next_rows: NDArray[np.int64] = np.zeros(n, np.int64)
        self._slots: NDArray[np.int32] = np.zeros(n, np.int32)
        self._drawn = Transitions(
            replay=self,
            observation=self._observe.out,
            action=self._act.out,
            reward=np.zeros(n, np.float32),
            next_observation=self._observe.out_next,
            discount=np.zeros(n, np.float32),
            weight=np.ones(n, np.float32),
        )

    @abstractmethod
    def _choose(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> None:
        """Write the rows (0 to R - 1, over all batches) and columns of the cells to draw, [n] each."""

    def _added(self, start: int, stop: int) -> None:
        """Take note that rows `start` to `stop` - 1 of the buffer hold new steps."""

    @property
    def n_stored(self) -> int:
        """Number of transitions that can be drawn now."""
        return self._stored.n_usable

    def add(self, samples: Samples, *, source: Hashable = None) -> None:
        """Add the batch that was just collected. See `Replay.add`."""
        self._added(*self._stored.add(samples, source))

    def sample(self) -> Transitions:
        """Draw `batch_size` transitions into the same arrays as before. See `Replay.sample`."""
        stored, drawn = self._stored, self._drawn
        stored.check_current()
        rows, columns = self._rows, self._columns
        self._choose(rows, columns)
        self._add_up(
            rows,
            columns,
            stored.link,
            self._reward,
            self.n_step,
            self.discount,
            drawn.reward,
            drawn.discount,
            self._next_rows,
            self._slots,
        )
        self._observe(rows, self._next_rows, columns, self._slots)
        self._act(rows, columns)
        return drawn

    def state(self) -> State:
        """Return the stored rows, as views of the memory, and the state of the generator."""
        return {"stored": self._stored.state(), "generator": self._generator.bit_generator.state}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. See `Replay.load_state`."""
        self._stored.load_state(state["stored"])
        self._generator.bit_generator.state = state["generator"]


def check_count(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}: expected an int of at least 1, got {value!r}")
