"""Compiled loops of replays. Imports numba, so it is itself imported only where a replay is made.

Rows are counted from 0 to R - 1 over all batches of the memory; R is a multiple of T. Bounds are not checked:
the callers of these functions draw rows and columns from what is stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.system.compilation import compiled

Ints = NDArray[np.int64]
Links = NDArray[np.int32]
Words = NDArray[Any]

# What follows a step, in `link` [R, B] int32. Other entries are slots in the table of last observations of
# episodes that were cut, see `LastObservations`.
GOES_ON = -1
TERMINATED = -2
UNUSABLE = -3  # no step of an environment, or its outcome was lost

# Cells are copied as words of 1, 4 or 8 bytes, whatever their dtype: few loops to compile.
WORDS = ("u1", "u4", "u8")


@compiled(
    "UniTuple(i8, 3)(i4[:,::1], i4[::1], i8, i8, b1[:,::1], b1[:,::1], b1[:,::1], b1, "
    "i4[::1], i8[::1], i8[::1])",
    nogil=True,
)
def mark_rows(
    link: Links,
    n_unusable: Links,
    first: int,
    stop: int,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    valid: NDArray[np.bool_],
    has_valid: bool,
    freed: Links,
    cut_rows: Ints,
    cut_columns: Ints,
) -> tuple[int, int, int]:
    """Set `link` of the rows of a new batch, and the number of cells in each row that cannot be drawn.

    freed: the slots that these rows occupied.  cut_rows, cut_columns: the cells that need a slot now.

    Returns the number of entries of `freed`, that of `cut_rows`, and the number of unusable cells.
    """
    n_freed, n_cut, total = 0, 0, 0
    for row in range(first, stop):
        count = 0
        for column in range(link.shape[1]):
            if link[row, column] >= 0:
                freed[n_freed] = link[row, column]
                n_freed += 1
            code = GOES_ON
            if has_valid and not valid[row, column]:
                code = UNUSABLE
                count += 1
            elif terminated[row, column]:
                code = TERMINATED
            elif truncated[row, column]:
                cut_rows[n_cut] = row
                cut_columns[n_cut] = column
                n_cut += 1
            link[row, column] = code
        n_unusable[row] = count
        total += count
    return n_freed, n_cut, total


@compiled("i8(f8[::1], i8, i8, i4[:,::1], i8[::1], i8[::1], i8)", nogil=True)
def keep_usable(
    drawn: NDArray[np.float64],
    first: int,
    n_cells: int,
    link: Links,
    rows: Ints,
    columns: Ints,
    n_kept: int,
) -> int:
    """Append the drawn cells that are usable to `rows` and `columns`; return how many there are now.

    drawn: numbers in [0, 1), each of which selects one of `n_cells` cells, counted row by row from row
        `first` on. Those beyond the room in `rows` are left out.
    """
    R, B = link.shape
    for i in range(min(len(drawn), len(rows) - n_kept)):
        # Not `Generator.integers`, which takes three times as long. The cells differ in probability by less
        # than n_cells / 2**53 of it.
        number = min(np.int64(drawn[i] * n_cells), n_cells - 1)
        row = number // B
        column = number - row * B
        row += first
        if row >= R:
            row -= R
        if link[row, column] != UNUSABLE:
            rows[n_kept] = row
            columns[n_kept] = column
            n_kept += 1
    return n_kept


@compiled(
    *[
        f"void(i8[::1], i8[::1], i4[:,::1], {reward}[:,::1], i8, f8, f4[::1], f4[::1], i8[::1], i4[::1])"
        for reward in ("f4", "f8")
    ],
    nogil=True,
)
def add_up_steps(
    rows: Ints,
    columns: Ints,
    link: Links,
    reward: NDArray[Any],
    n_step: int,
    discount: float,
    out_reward: NDArray[np.float32],
    out_discount: NDArray[np.float32],
    out_next_rows: Ints,
    out_slots: Links,
) -> None:
    """Follow each cell for up to `n_step` steps, or to the end of its episode.

    out_next_rows: rows of the observations reached, 1 to R: row R is the padding row after row R - 1.
    out_slots: slots in the table, -1 where the next observation is in its row.
    """
    R = link.shape[0]
    first = 0.0
    for i in range(len(rows)):  # reads all before any is used, as in `gather`
        first += reward[rows[i], columns[i]]
    out_reward[0] = first
    for i in range(len(rows)):
        row, column = rows[i], columns[i]
        total, factor, slot = 0.0, 1.0, -1
        for k in range(n_step):
            total += factor * reward[row, column]
            factor *= discount
            code = link[row, column]
            if code == TERMINATED:
                factor = 0.0
                break
            if code >= 0:
                slot = code
                break
            if k + 1 < n_step:
                following = row + 1 if row + 1 < R else 0
                # The step after this one was lost, but not the observation that it began with.
                if link[following, column] == UNUSABLE:
                    break
                row = following
        out_reward[i] = total
        out_discount[i] = factor
        out_next_rows[i] = row + 1
        out_slots[i] = slot


@compiled(
    *[f"void({w}[:,:,::1], i8, i8[::1], i8[::1], {w}[:,::1])" for w in WORDS],
    nogil=True,
)
def gather(memory: Words, padding: int, rows: Ints, columns: Ints, out: Words) -> None:
    """Copy cells into `out` [n, words].

    memory: [R + 2 * padding, B, words].
    """
    last = out.shape[1] - 1
    # Cells are seldom in a cache. A loop that reads only their ends lets the processor wait for many of them
    # at once, which halves the time for a million transitions.
    seen = memory[0, 0, 0]
    for i in range(len(rows)):
        row, column = rows[i] + padding, columns[i]
        seen |= memory[row, column, 0] | memory[row, column, last]
    out[0, 0] = seen  # or the loop would be left out; it is overwritten
    for i in range(len(rows)):
        row, column = rows[i] + padding, columns[i]
        for j in range(out.shape[1]):
            out[i, j] = memory[row, column, j]


@compiled(
    *[
        f"void({w}[:,:,::1], i8, i8[::1], i8[::1], i8[::1], i4[::1], {w}[:,::1], {w}[:,::1], {w}[:,::1])"
        for w in WORDS
    ],
    nogil=True,
)
def gather_pairs(
    memory: Words,
    padding: int,
    rows: Ints,
    next_rows: Ints,
    columns: Ints,
    slots: Links,
    table: Words,
    out: Words,
    out_next: Words,
) -> None:
    """Copy cells into `out`, and their successors, in `next_rows` or in the table, into `out_next`."""
    last = out.shape[1] - 1
    seen = memory[0, 0, 0]  # as in `gather`
    for i in range(len(rows)):
        row, after, column = rows[i] + padding, next_rows[i] + padding, columns[i]
        seen |= memory[row, column, 0] | memory[row, column, last]
        seen |= memory[after, column, 0] | memory[after, column, last]
    out[0, 0] = seen
    for i in range(len(rows)):
        row, column, slot = rows[i] + padding, columns[i], slots[i]
        for j in range(out.shape[1]):
            out[i, j] = memory[row, column, j]
        if slot >= 0:
            for j in range(out.shape[1]):
                out_next[i, j] = table[slot, j]
        else:
            row = next_rows[i] + padding
            for j in range(out.shape[1]):
                out_next[i, j] = memory[row, column, j]


@compiled(*[f"void(i4[::1], {w}[:,::1], {w}[:,::1])" for w in WORDS], nogil=True)
def gather_slots(slots: Links, table: Words, out: Words) -> None:
    """Replace the entries of `out` that have a slot in the table."""
    for i in range(len(slots)):
        slot = slots[i]
        if slot >= 0:
            for j in range(out.shape[1]):
                out[i, j] = table[slot, j]


@compiled(*[f"void({w}[:,::1], u8[::1])" for w in WORDS], nogil=True)
def add_to_fingerprints(row: Words, out: NDArray[np.uint64]) -> None:
    """Mix the cells of a row, [B, words], into one number for each column (FNV-1a, word by word)."""
    prime = np.uint64(0x100000001B3)
    for column in range(row.shape[0]):
        number = out[column]
        for j in range(row.shape[1]):
            number = (number ^ np.uint64(row[column, j])) * prime
            # Bits of words move only upwards in a product; without this the lowest bytes would stay apart.
            number ^= number >> np.uint64(29)
        out[column] = number
