"""Compiled loops of a SequenceReplay. Imports numba, so it is itself imported only where a replay is made.

A sequence is a list of positions. Most of them are steps. Rows in which no step was taken are left out.
Where an episode was cut, a position without a step holds the observation that followed its last step:

    rows of a column     0    1    2    3    4    5    6    7          T = 4, the episode is cut in row 1
    link                 -1   s   UNUSABLE   -1   -1   -1  -1
    positions            0    1   2          3    4    5    6
    row                  0    1   slot s     4    5    6    7
    reset                                    x
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.replays.compiled import GOES_ON, TERMINATED, UNUSABLE
from parllel.system.compilation import compiled

Ints = NDArray[np.int64]
Links = NDArray[np.int32]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]

# What is at a position.
_STEP, _LAST, _CUT, _OBSERVATION, _NOTHING = range(5)


@compiled("void(i4[:,::1], i8, i8, b1[::1], i8[::1])", nogil=True)
def count_positions(link: Links, first: int, stop: int, goes_on: Bools, total: Ints) -> None:
    """Add the numbers of positions of rows `first` to `stop` - 1 to `total` [B].

    goes_on: [B], whether the step before these rows goes on; overwritten for the next call.
    """
    for row in range(first, stop):
        for column in range(link.shape[1]):
            code = link[row, column]
            if code == UNUSABLE:
                if goes_on[column]:
                    total[column] += 1
            else:
                total[column] += 1
                if code >= 0:
                    total[column] += 1
            goes_on[column] = code == GOES_ON


@compiled(
    "i8(i8[:,::1], i8[::1], b1[::1], i8[::1], i8, i8, i8, i4[:,::1], i8, i8[::1])", nogil=True
)
def complete_starts(
    before: Ints,
    total: Ints,
    goes_on: Bools,
    waiting: Ints,
    oldest: int,
    stop: int,
    length: int,
    link: Links,
    T: int,
    cells: Ints,
) -> int:
    """Write the starts that have become complete to `cells`, and return their number.

    before: [N, B], number of positions before each batch.  total: [B], before the next batch.
    waiting: [B], the first batch whose start is not complete yet; advanced here.
    oldest, stop: the batches whose rows are stored, as numbers that count all batches ever added.
    """
    N, B = before.shape
    n = 0
    for column in range(B):
        # The observation after the newest step can be the last position.
        reached = total[column] + goes_on[column]
        number = max(waiting[column], oldest)
        while number < stop and reached - before[number % N, column] >= length:
            # Without a step in its first row, the stored state belongs to none.
            if link[(number % N) * T, column] != UNUSABLE:
                cells[n] = (number % N) * B + column
                n += 1
            number += 1
        waiting[column] = number
    return n


@compiled(
    *[
        f"void(i8[::1], i8[::1], i8[::1], i4[:,::1], {reward}[:,::1], i8, i8, f8, "
        "i8[:,::1], i8[:,::1], i4[:,::1], b1[:,::1], f4[:,::1], f4[:,::1], i8[:,::1], b1[:,::1])"
        for reward in ("f4", "f8")
    ],
    nogil=True,
)
def follow_sequences(
    starts: Ints,
    columns: Ints,
    n_rows: Ints,
    link: Links,
    reward: NDArray[Any],
    warm_up: int,
    n_step: int,
    discount: float,
    rows: Ints,
    steps: Ints,
    slots: Links,
    reset: Bools,
    out_reward: Floats,
    out_discount: Floats,
    next_position: Ints,
    valid: Bools,
) -> None:
    """Find the positions of n sequences, and the n-step returns of those after the warm-up.

    starts, columns: [n], the cells of the first positions.  n_rows: [n], rows stored from there on.
    rows, slots: [P, n], where observations are: in a row, 0 to R (row R is the padding after row R - 1), or
        in a slot of the table of last observations where `slots` is not -1.
    steps: [P, n], rows from 0 to R - 1, which hold the actions.
    out_reward, out_discount, next_position, valid: [length, n].
    """
    R, P, length = link.shape[0], rows.shape[0], valid.shape[0]
    kind = np.empty(P, np.int64)
    got = np.empty(P, np.float64)
    for i in range(len(starts)):
        row, column = starts[i], columns[i]
        p, goes_on, new = 0, False, False
        for _ in range(n_rows[i]):
            code = link[row, column]
            if code == UNUSABLE:
                if goes_on and p < P:
                    # The step was lost, but not the observation that it began with.
                    kind[p], got[p] = _OBSERVATION, 0.0
                    rows[p, i], steps[p, i], slots[p, i], reset[p, i] = row, row, -1, False
                    p += 1
                goes_on, new = False, True
            elif p < P:
                kind[p], got[p] = _STEP, reward[row, column]
                rows[p, i], steps[p, i], slots[p, i], reset[p, i] = row, row, -1, new
                goes_on = code == GOES_ON
                new = not goes_on
                if code == TERMINATED:
                    kind[p] = _LAST
                p += 1
                if code >= 0:
                    kind[p - 1] = _CUT
                    if p < P:
                        kind[p], got[p] = _OBSERVATION, 0.0
                        rows[p, i], steps[p, i], slots[p, i], reset[p, i] = row, row, code, False
                        p += 1
            if p == P:
                break
            row = row + 1 if row + 1 < R else 0
        if p < P and goes_on:
            # The observation after the newest row. `row` has wrapped around if that is the padding.
            kind[p], got[p] = _OBSERVATION, 0.0
            rows[p, i], steps[p, i], slots[p, i], reset[p, i] = row if row else R, row, -1, False
            p += 1
        while p < P:
            kind[p], got[p] = _NOTHING, 0.0
            rows[p, i], steps[p, i], slots[p, i], reset[p, i] = starts[i], starts[i], -1, True
            p += 1
        for j in range(length):
            at = warm_up + j
            used = kind[at] < _OBSERVATION
            total, factor = 0.0, 1.0
            if used:
                for _ in range(n_step):
                    total += factor * got[at]
                    factor *= discount
                    if kind[at] == _LAST:
                        factor = 0.0
                        break
                    at += 1
                    if kind[at] >= _OBSERVATION:
                        used = kind[at] == _OBSERVATION
                        break
            if not used:
                total, factor, at = 0.0, 0.0, warm_up + j
            out_reward[j, i], out_discount[j, i] = total, factor
            next_position[j, i], valid[j, i] = at, used
