"""The books of a replay: which rows of the buffer are stored, what follows each step, what may be drawn.

    rows of the buffer, T = 2, N = 4, the batch in window 1 is the newest
    window      0        1        2        3
    row       0    1   2    3   4    5   6    7
    age      -3   -2  -1    0  -7   -6  -5   -4
                                ^ the oldest row: its observation is that of row T of the newest batch

So the oldest row is never drawn once all windows are filled. With stacks of k frames, the k - 1 rows after it
are not drawn either, because their stacks reach back to it. The newest `n_step - 1` rows have to wait
for the steps that follow them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.arrays.frame_block import FrameBlock
from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.arrays.switching import SwitchingArray
from parllel.buffers.batches import count_batches, moving, shown_number
from parllel.buffers.large_array import LargeArray
from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays, buffer_leaves
from parllel.errors import WrongStateError
from parllel.replays.cell_words import as_words
from parllel.replays.last_observations import LastObservations
from parllel.types import State

OBSERVATION, FINAL, RAW = "agent.observation", "agent.final_observation", "env.observation"
FLAGS = ("env.terminated", "env.truncated")
_COUNTED = 1 << 18  # rows looked at together, as a comparison of all would take memory


class StoredRows:
    """The rows of a buffer of several batches, and the books about them.

    Args:
        samples: the buffer, [T, B] with N batches.
        reward: path of the rewards.
        n_step: number of steps that a drawn cell looks ahead.
        who: name of the replay, for errors.
        also: paths of further fields that belong to the memory.

    Attributes:
        samples: the buffer.
        T, B, N: its size; R = N * T.
        link: [R, B] int32, what follows each step, see `compiled`.
        last: the true last observations of episodes that were cut.
        reads: paths of the fields that are stored or read.
        n_added: number of rows that were ever added; row a was stored in row a % R of the buffer.

    Raises:
        TypeError: if `samples` is not a Samples.
        ValueError: if the buffer holds one batch, lacks a field, or is too small for `n_step` and the frames.
    """

    def __init__(
        self,
        samples: Samples,
        *,
        reward: str = "env.reward",
        n_step: int = 1,
        who: str = "replay",
        also: tuple[str, ...] = (),
    ) -> None:
        from parllel.replays import compiled  # imports numba

        self._compiled = compiled
        self._who = who
        self.samples = samples
        self._arrays = _checked_arrays(samples, who)
        self._moving = [array.block for array in moving(self._arrays)]
        self._clock = samples.env.done.block  # any array that moves
        self.T, self.B = samples.env.done.shape[:2]
        self.N = count_batches(self._arrays)
        self.R = self.N * self.T
        valid = ("env.valid",) if getattr(samples.env, "valid", None) is not None else ()
        self.reads = (OBSERVATION, FINAL, "agent.action", reward, *FLAGS, *valid, *also)
        self._check_fields(reward)
        observed = [leaf for _, leaf in buffer_leaves(samples.agent.observation)]
        depths = [leaf.frames for leaf in observed if isinstance(leaf, LazyFramesArray)]
        # Rows at the old end whose observations are overwritten, at least in part.
        self.n_overwritten = max(depths, default=1)
        self.n_step = n_step
        if self.R - self.n_overwritten - (n_step - 1) < 1:
            raise ValueError(
                f"{who}: samples: expected more than {self.n_overwritten + n_step - 1} rows for "
                f"n_step={n_step}{f' and {max(depths)} frames' if depths else ''}, got {self.R} "
                f"({self.N} batches of {self.T}); allocate_samples(..., n_batches=...) makes more"
            )
        self._terminated = rows_of(samples.env.terminated)
        self._truncated = rows_of(samples.env.truncated)
        self._valid = rows_of(samples.env.valid) if valid else self._terminated
        self._has_valid = bool(valid)
        self._final = [leaf for _, leaf in buffer_leaves(samples.agent.final_observation)]
        self.link: NDArray[np.int32] = np.full((self.R, self.B), compiled.UNUSABLE, np.int32)
        self.last = LastObservations([np.zeros(leaf.shape[2:], leaf.dtype) for leaf in observed])
        self._observed = observed
        self._raw = [
            part for _, leaf in buffer_leaves(samples.env.observation) for part in _raw_rows(leaf)
        ]
        self._n_unusable: NDArray[np.int32] = np.zeros(self.R, np.int32)
        n = self.T * self.B
        self._freed: NDArray[np.int32] = np.empty(n, np.int32)
        self._cut_rows: NDArray[np.int64] = np.empty(n, np.int64)
        self._cut_columns: NDArray[np.int64] = np.empty(n, np.int64)
        self._following: NDArray[np.uint64] = np.zeros(self.B, np.uint64)
        self._found: NDArray[np.uint64] = np.zeros(self.B, np.uint64)
        self.n_added = self._n_windows = 0
        self._low = self._high = self._n_bad = 0
        self._any_bad = False
        self._copies: bool | None = None
        self._source: Hashable = None
        self._generation = -1

    # ------------------------------------------------------------------ what is there

    @property
    def usable(self) -> tuple[int, int]:
        """The rows that may be drawn from, as a range of counts like `n_added`."""
        return self._low, self._high

    @property
    def n_usable(self) -> int:
        """Number of cells that can be drawn."""
        return int((self._high - self._low) * self.B - self._n_bad)

    @property
    def all_usable(self) -> bool:
        """Whether every cell of the rows in `usable` can be drawn."""
        return self._n_bad == 0

    def check_current(self) -> None:
        """Raise WrongStateError if there is nothing to draw, or the memory has moved since the last `add`."""
        if self._clock.generation != self._generation and self.n_added:
            raise WrongStateError(
                f"{self._who}: a batch has been started in the buffer since the last add(), which "
                "overwrites rows that could be drawn; call add() after each batch, before sample()"
            )
        if not self.n_usable:
            raise WrongStateError(
                f"{self._who}: nothing to draw yet, with {self.n_added} rows added; with "
                f"n_step={self.n_step} the first transitions can be drawn after {self.n_step} rows"
            )

    # ------------------------------------------------------------------ adding

    def add(self, samples: Samples, source: Hashable = None) -> tuple[int, int]:
        """Add a batch, as described in `Replay.add`. Returns its rows in the buffer, as start and stop."""
        if self._is_own(samples):
            self._check_own()
            first = self._clock.window
            lost = self._find_interrupted(first)
            if self.n_added and lost.any():
                self._mark_lost(lost)
        else:
            self._check_foreign(samples)
            first = self._copy(samples, source)
        self._source = source
        self._count(first)
        self._set_following(first + self.T)
        self._generation = self._clock.generation
        return first, first + self.T

    def _is_own(self, samples: Samples) -> bool:
        if samples is self.samples:
            return True
        done = samples.env.done
        if not isinstance(done, Array) or done.block is not self._clock:
            return False
        if done.is_view:
            raise ValueError(
                f"{self._who}: expected the whole batch of {self.T} rows, got {done.shape[0]} of them; "
                "a sampler that fills fewer rows has to mark the others in env.valid"
            )
        return True

    def _check_own(self) -> None:
        if self._copies:
            raise ValueError(
                f"{self._who}: expected another batch in other memory, as before, got the replay's own buffer"
            )
        self._copies = False
        shown_number(self._moving)
        steps = self._clock.generation - self._generation
        if self.n_added and steps != 1:
            raise WrongStateError(
                f"{self._who}: this batch was added already"
                if steps == 0
                else f"{self._who}: {steps - 1} batches were collected but not added; call add() after each "
                "batch"
            )

    def _check_foreign(self, samples: Samples) -> None:
        if self._copies is False:
            raise ValueError(
                f"{self._who}: expected the replay's own buffer, into which a sampler writes, got a "
                "batch in other memory"
            )
        if self.n_added and self._clock.generation != self._generation:
            raise WrongStateError(
                f"{self._who}: something else has moved the buffer; a replay that copies batches needs a "
                "buffer that no sampler writes into"
            )
        self._copies = True

    def _find_interrupted(self, first: int) -> NDArray[np.bool_]:
        """Return the columns in which row `first` does not hold the observation after the row before, [B]."""
        # By value: environments that were restarted between two batches, or that lost their state when
        # the run was resumed, were reset into this row. The raw observations are compared, because
        # transforms may write what the agent sees with other statistics again. A reset to the very
        # observation that was there goes on from it as well as the step that was lost.
        self._fingerprint(first, self._found)
        lost: NDArray[np.bool_] = self._found != self._following
        return lost

    def _mark_lost(self, lost: NDArray[np.bool_]) -> None:
        """Exclude the steps before the batch in some columns, as the observations after them are gone."""
        row = (self.n_added - 1) % self.R
        codes = self.link[row]
        cut = lost & (codes == self._compiled.GOES_ON)
        n = int(np.count_nonzero(cut))
        if n:
            codes[cut] = self._compiled.UNUSABLE
            self._n_unusable[row] += n
            self._any_bad = True
            if self._low <= self.n_added - 1 < self._high:
                self._n_bad += n

    def _fingerprint(self, row: int, out: NDArray[np.uint64]) -> None:
        """Write a number for the raw observation in each column of a row, [B]."""
        out.fill(0xCBF29CE484222325)
        for rows, before in self._raw:
            self._compiled.add_to_fingerprints(rows[row + before], out)

    def _set_following(self, row: int) -> None:
        self._fingerprint(row, self._following)

    def _count(self, first: int) -> None:
        """Enter the rows from `first` on into the books."""
        T = self.T
        if not self.n_added:
            # So that row a is in row a % R of the buffer, wherever the first batch is.
            self.n_added = self._low = self._high = first
        added = self.n_added + T
        n_windows = min(self._n_windows + 1, self.N)
        low, high = self._range(added, n_windows)
        # Before the rows are overwritten.
        leaving = self._bad_in(self._low, min(low, self._high))
        n_freed, n_cut, n_bad = self._compiled.mark_rows(
            self.link,
            self._n_unusable,
            first,
            first + T,
            self._terminated,
            self._truncated,
            self._valid,
            self._has_valid,
            self._freed,
            self._cut_rows,
            self._cut_columns,
        )
        if n_freed:
            self.last.free(self._freed[:n_freed])
        if n_cut:
            rows, columns = self._cut_rows[:n_cut], self._cut_columns[:n_cut]
            self._keep(
                rows, columns, [np.asarray(leaf)[rows - first, columns] for leaf in self._final]
            )
        self._any_bad = self._any_bad or n_bad > 0
        entering = self._bad_in(max(self._high, low), high)
        self._n_bad += entering - leaving
        self.n_added, self._n_windows = added, n_windows
        self._low, self._high = low, high

    def _bad_in(self, start: int, stop: int) -> int:
        if not self._any_bad or start >= stop:
            return 0
        first, last = start % self.R, (stop - 1) % self.R
        counts = self._n_unusable
        if first <= last:
            return int(counts[first : last + 1].sum())
        return int(counts[first:].sum() + counts[: last + 1].sum())

    def _keep(self, rows: NDArray[Any], columns: NDArray[Any], values: list[NDArray[Any]]) -> None:
        slots = self.last.take(len(rows))
        for table, value in zip(self.last.tables, values, strict=True):
            table[slots] = value
        self.link[rows, columns] = slots

    # ------------------------------------------------------------------ batches in other memory

    def _copy(self, samples: Samples, source: Hashable) -> int:
        """Copy a batch into the next window; return its first row."""
        pairs = self._pairs_of(samples)
        before = None
        if self.n_added:
            if source == self._source:
                self._check_new(pairs)
            # Row T of the batch before: copying overwrites it, and another source does not continue from it.
            before = [np.array(leaf[leaf.last + 1]) for leaf in self._observed]
            for array in self._arrays:
                array.rotate()
        first = self._clock.window
        for mine, theirs in pairs:
            n = len(theirs)
            if isinstance(mine, LazyFramesArray):
                mine[:n] = theirs
            else:
                np.copyto(np.asarray(mine[:n]), theirs, casting="same_kind")
        if before is not None:
            lost = self._find_interrupted(first)
            if source != self._source:
                lost[:] = True
            self._cut(lost, before)
        return int(first)

    def _check_new(self, pairs: list[tuple[Array, NDArray[Any]]]) -> None:
        """Raise WrongStateError for the batch that was added last."""
        # The first row of the observation settles it, unless the batch is the same.
        if all(np.array_equal(np.asarray(mine[: len(rows)]), rows) for mine, rows in pairs):
            self._fingerprint(self._clock.window, self._found)
            # An environment that never changes returns equal batches.
            if (self._found != self._following).any():
                raise WrongStateError(f"{self._who}: this batch was added already")

    def _cut(self, lost: NDArray[np.bool_], before: list[NDArray[Any]]) -> None:
        """End the episodes of some columns with the batch before, at the observations that followed it."""
        row = (self.n_added - 1) % self.R
        columns = np.flatnonzero(lost & (self.link[row] == self._compiled.GOES_ON))
        if len(columns):
            self._keep(np.full(len(columns), row), columns, [leaf[columns] for leaf in before])

    def _pairs_of(self, samples: Samples) -> list[tuple[Array, NDArray[Any]]]:
        """Return each array of the buffer with the rows to copy into it, row T included."""
        needed = (*self.reads, RAW)
        pairs: dict[int, tuple[Array, NDArray[Any]]] = {}
        for path, mine in buffer_leaves(self.samples):
            if not isinstance(mine, Array) or mine.block.key in pairs:
                continue
            stored = any(f"{path}.".startswith(f"{one}.") for one in needed)
            try:
                theirs = field_at(samples, path)
            except ValueError as error:
                if stored:
                    raise ValueError(f"{self._who}: the batch lacks a field: {error}") from None
                continue
            n = len(mine) + (1 if mine.padding else 0)
            rows = np.asarray(theirs[:n] if getattr(theirs, "padding", 0) else theirs)
            if rows.shape[1:] != mine.shape[1:] or len(rows) not in (n, len(mine)):
                raise ValueError(
                    f"{self._who}: {path}: expected a batch {mine.shape}, got {rows.shape}"
                )
            if stored and len(rows) < n:
                raise ValueError(
                    f"{self._who}: {path}: expected row T too, the observation after the batch, got "
                    f"{len(rows)} rows without padding"
                )
            if not np.can_cast(rows.dtype, mine.dtype, "same_kind"):
                raise ValueError(f"{self._who}: {path}: expected {mine.dtype}, got {rows.dtype}")
            pairs[mine.block.key] = mine, rows
        return list(pairs.values())

    # ------------------------------------------------------------------ checkpoints

    def state(self) -> State:
        """Return the books, and the stored rows as views of the memory."""
        source = self._source if isinstance(self._source, (str, int)) else None
        return {
            "size": {"T": self.T, "B": self.B, "N": self.N},
            "n_added": self.n_added,
            "n_windows": self._n_windows,
            "window": self._clock.window_number,
            "copies": self._copies,
            "source": source,
            "following": self._following.copy(),
            "link": LargeArray(self.link),
            "last": self.last.state(),
            "rows": {
                path: [LargeArray(piece) for piece in pieces]
                for path, pieces in self._pieces().items()
            },
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`, and show the window that was the newest.

        Raises:
            ValueError: if it belongs to a buffer of another size or with other fields.
        """
        size = {"T": self.T, "B": self.B, "N": self.N}
        if state["size"] != size:
            raise ValueError(f"expected the rows of a buffer of size {size}, got {state['size']}")
        added, n_windows = int(state["n_added"]), int(state["n_windows"])
        self.n_added, self._n_windows = added, n_windows
        saved, mine = state["rows"], self._pieces()
        shapes = {path: [piece.shape for piece in pieces] for path, pieces in mine.items()}
        found = {path: [piece.shape for piece in pieces] for path, pieces in saved.items()}
        if shapes != found:
            raise ValueError(f"expected rows of shapes {shapes}, got {found}")
        self.last.load_state(state["last"])
        state["link"].read_into(self.link)
        for path, pieces in mine.items():
            for piece, one in zip(pieces, saved[path], strict=True):
                one.read_into(piece)
        if n_windows:
            for block in self._moving:
                block.show(int(state["window"]))
        self._following[...] = state["following"]
        self._copies, self._source = state["copies"], state["source"]
        for start in range(0, self.R, _COUNTED):
            rows = slice(start, start + _COUNTED)
            unusable = self.link[rows] == self._compiled.UNUSABLE
            self._n_unusable[rows] = np.count_nonzero(unusable, axis=1)
        self._any_bad = True  # known again from now on, if it takes a little longer
        self._low, self._high = self._range(added, n_windows)
        self._n_bad = self._bad_in(self._low, self._high)
        self._generation = self._clock.generation

    def _range(self, added: int, n_windows: int) -> tuple[int, int]:
        """Return the rows that can be drawn from, by when they were added."""
        low = added - n_windows * self.T + (self.n_overwritten if n_windows == self.N else 0)
        high = max(added - (self.n_step - 1), added - n_windows * self.T)
        return min(low, high), high

    def _pieces(self) -> dict[str, list[NDArray[Any]]]:
        """Return the memory of the stored rows, one or two pieces for each array, by path."""
        blocks: dict[int, tuple[str, Any]] = {}
        for path in self.reads:
            if path == FINAL:  # of the current batch; the books have copied what they need
                continue
            for at, leaf in buffer_leaves(field_at(self.samples, path), path):
                blocks.setdefault(leaf.block.key, (at, leaf.block))
        found: dict[str, list[NDArray[Any]]] = {}
        for path, block in blocks.values():
            ranges = self._memory_rows(block.padding)
            if not isinstance(block, FrameBlock):
                found[path] = [block.public()[start:stop] for start, stop in ranges]
                continue
            # The stacks of these rows reach back to the frames before.
            more = block.depth - 1
            block.public()  # counts as a view that is in use
            found[path] = [
                part[start : stop + more]
                for part in (block.frames, block.reach)
                for start, stop in ranges
            ] + [block.newest]
        return found

    def _memory_rows(self, padding: int) -> list[tuple[int, int]]:
        """Return the stored rows as ranges of rows of a memory with padding, the row after them included."""
        n = self._n_windows * self.T
        if not n:
            return []
        if n == self.R:
            return [(0, self.R + 2 * padding)]
        start, after = (self.n_added - n) % self.R, min(padding, 1)
        stop = start + n
        if stop <= self.R:
            return [(padding + start, padding + stop + after)]
        return [
            (padding + start, self.R + 2 * padding),
            (0, padding + stop - self.R + after),
        ]

    # ------------------------------------------------------------------ checks of the buffer

    def _check_fields(self, reward: str) -> None:
        samples, who = self.samples, self._who
        for path in (*self.reads, RAW):
            try:
                field = field_at(samples, path)
            except ValueError as error:
                hint = ""
                if path == FINAL:
                    hint = (
                        "; give FinalObservations() to allocate_samples(transforms=...) and to the sampler "
                        "(batch_transforms=...), so that the observations at which episodes were cut are kept"
                    )
                raise ValueError(f"{who}: samples: {path} is missing{hint}: {error}") from None
            for at, leaf in buffer_leaves(field, path):
                if not isinstance(leaf, Array) or leaf.shape[:2] != (self.T, self.B):
                    raise ValueError(
                        f"{who}: {at}: expected [{self.T}, {self.B}, ...], got {leaf!r}"
                    )
                if path != FINAL and (leaf.is_view or leaf.block.n_windows != self.N):
                    raise ValueError(
                        f"{who}: {at}: expected the whole field with {self.N} batches, as the others, got "
                        f"{leaf!r}"
                    )
                if path in (OBSERVATION, RAW) and not leaf.padding:
                    raise ValueError(f"{who}: {at}: expected padding, for the row after the batch")
        rewards = field_at(samples, reward)
        if not isinstance(rewards, Array) or rewards.shape != (self.T, self.B):
            raise ValueError(
                f"{who}: {reward}: expected one reward per step, [{self.T}, {self.B}], got {rewards!r}"
            )
        if rewards.dtype not in (np.float32, np.float64):
            raise ValueError(f"{who}: {reward}: expected float32 or float64, got {rewards.dtype}")
        seen = [
            (path, leaf.shape[2:], leaf.dtype)
            for path, leaf in buffer_leaves(samples.agent.observation)
        ]
        final = [
            (path, leaf.shape[2:], leaf.dtype)
            for path, leaf in buffer_leaves(samples.agent.final_observation)
        ]
        if seen != final:
            raise ValueError(
                f"{who}: {FINAL}: expected cells like {OBSERVATION}'s, {seen}, got {final}"
            )


def rows_of(array: Array) -> NDArray[Any]:
    """Return a view of all rows of an array, without padding: [R, B, ...], contiguous."""
    block = array.block
    rows: NDArray[Any] = block.public()[block.padding : block.padding + block.full_size]
    return rows


def _raw_rows(leaf: Array) -> list[tuple[NDArray[Any], int]]:
    """Return what tells the observations of a row apart, [rows, B, words], and the rows before row 0."""
    block = leaf.block
    if isinstance(block, FrameBlock):
        # The newest frame, and how many of those before it belong to the stack.
        before = block.padding + block.depth - 1
        block.public()  # counts as a view that is in use
        return [(as_words(block.frames, 2), before), (block.reach[..., None], before)]
    return [(as_words(block.public(), 2), block.padding)]


def _checked_arrays(samples: Any, who: str) -> list[Array]:
    """Return the arrays of a buffer of several batches. Raises TypeError or ValueError."""
    if not isinstance(samples, Samples):
        raise TypeError(f"{who}: samples: expected Samples, got {type(samples).__name__}")
    arrays = buffer_arrays(samples)
    if any(isinstance(array, SwitchingArray) for array in arrays):
        raise ValueError(f"{who}: samples: expected no switching arrays; use switching=False")
    if count_batches(arrays) < 2:
        raise ValueError(
            f"{who}: samples: expected a buffer of several batches, got one batch; "
            "allocate_samples(..., n_batches=...) makes one that holds the last n_batches batches"
        )
    if not isinstance(samples.env.done, Array) or samples.env.done.block.n_windows < 2:
        raise ValueError(f"{who}: samples: env.done: expected an array of several batches")
    return arrays
