"""Priorities of what a replay stores: drawing, importance weights and updates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.large_array import LargeArray
from parllel.errors import WrongStateError
from parllel.replays.sum_tree import SumTree
from parllel.types import State


class Priorities:
    """Proportional prioritisation (Schaul et al. 2016, section 3.3).

    Cell i is drawn with probability `P(i) = p_i / sum_k p_k`, where `p_i = (|error_i| + epsilon)**alpha`. The
    weight of a draw is `(N P(i))**-beta`, divided by the largest weight of the batch. A cell that cannot be
    drawn has p_i = 0; one that becomes drawable gets the highest p_i so far.

    Args:
        who: name of the replay, for errors.
        capacity: number of cells.
        n: number of cells that `draw` draws.
        alpha: how much priorities matter: 0 draws uniformly, 1 in proportion to the errors.
        beta: how much weights correct for that: 0 not at all, 1 fully.
        final_beta: beta after `beta_draws` draws.
        beta_draws: number of draws over which beta changes linearly; None keeps it.
        epsilon: added to errors, so that all cells are drawn from time to time.

    Attributes:
        cells: [n] int64, the cells that were drawn last; -1 where a cell was overwritten since.

    Raises:
        ValueError: for numbers out of range.
    """

    def __init__(
        self,
        who: str,
        capacity: int,
        n: int,
        *,
        alpha: float,
        beta: float,
        final_beta: float,
        beta_draws: int | None,
        epsilon: float,
    ) -> None:
        for name, value in (("alpha", alpha), ("beta", beta), ("final_beta", final_beta)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{who}: {name}: expected 0 or more, got {value}")
        if not 0 < epsilon < math.inf:
            raise ValueError(f"{who}: epsilon: expected more than 0, got {epsilon}")
        if beta_draws is not None and beta_draws < 1:
            raise ValueError(f"{who}: beta_draws: expected None or at least 1, got {beta_draws}")
        from parllel.replays import compiled_sum_tree  # imports numba

        self._who = who
        self.alpha, self._epsilon = float(alpha), float(epsilon)
        self._betas, self._beta_draws = (float(beta), float(final_beta)), beta_draws
        self._draw, self._set = compiled_sum_tree.draw_cells, compiled_sum_tree.set_priorities
        self._tree = SumTree(capacity)
        self.cells: NDArray[np.int64] = np.full(n, -1, np.int64)
        self._values: NDArray[np.float64] = np.empty(n)
        self._uniform: NDArray[np.float64] = np.empty(n)
        self._nodes: NDArray[np.int64] = np.empty(n, np.int64)
        self._highest = 1.0
        self._n_draws = 0
        self._pending = False

    @property
    def beta(self) -> float:
        """The exponent of the weights of the next draw."""
        beta, final = self._betas
        if self._beta_draws is None:
            return beta
        return beta + (final - beta) * min(self._n_draws / self._beta_draws, 1.0)

    @property
    def values(self) -> NDArray[np.float64]:
        """p_i of each cell, a read-only view [capacity]."""
        return self._tree.values

    def draw(self, generator: np.random.Generator, weight: NDArray[np.float32]) -> None:
        """Draw `cells`, and write their weights, [n]. Something must be drawable."""
        generator.random(out=self._uniform)
        self._draw(self._tree.nodes, self._uniform, self.beta, self.cells, self._values, weight)
        self._n_draws += 1
        self._pending = True

    def admit(self, start: int, drawable: NDArray[np.bool_]) -> None:
        """Give the cells from `start` on the highest priority so far, or 0 where they are not drawable."""
        self._tree.set_range(start, np.where(drawable, self._highest, 0.0))

    def admit_cells(self, cells: NDArray[np.int64]) -> None:
        """Give cells the highest priority so far."""
        self._tree.set(cells, self._highest)

    def exclude(self, start: int, stop: int) -> None:
        """Never draw cells `start` to `stop` - 1 again, until they are admitted."""
        self._tree.set_range(start, np.zeros(stop - start))

    def forget(self, start: int, stop: int) -> None:
        """Take note that cells `start` to `stop` - 1 hold something else than when they were drawn."""
        if self._pending:
            cells = self.cells
            cells[(cells >= start) & (cells < stop)] = -1

    def update(self, errors: NDArray[Any]) -> None:
        """Set the priorities of the cells that were drawn last. See `Replay.update_priorities`.

        errors: [n].

        Raises:
            ValueError: for errors of another shape, or that are not finite; nothing is changed then.
            WrongStateError: if nothing was drawn yet.
        """
        numbers = np.ascontiguousarray(errors, np.float64)
        if numbers.shape != self.cells.shape:
            raise ValueError(
                f"{self._who}: errors: expected shape {self.cells.shape}, got {numbers.shape}"
            )
        if not self._pending:
            raise WrongStateError(
                f"{self._who}: nothing was drawn whose priorities could be updated; call sample() first"
            )
        highest = self._set(
            self._tree.nodes,
            self.cells,
            numbers,
            self.alpha,
            self._epsilon,
            self._highest,
            self._nodes,
        )
        if highest < 0:
            wrong = np.flatnonzero(~np.isfinite(numbers))[0]
            raise ValueError(
                f"{self._who}: errors: expected finite numbers, got {numbers[wrong]} at {wrong}"
            )
        self._highest = float(highest)

    def state(self) -> State:
        """Return the priorities, the highest so far, and the cells drawn last."""
        return {
            "values": LargeArray(self._tree.nodes[self._tree.capacity :]),
            "highest": self._highest,
            "n_draws": self._n_draws,
            "cells": self.cells.copy(),
            "pending": self._pending,
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if it belongs to another number of cells, or another batch size.
        """
        if state["cells"].shape != self.cells.shape:
            raise ValueError(
                f"{self._who}: expected the state of a replay that draws {len(self.cells)} at a time, got "
                f"{len(state['cells'])}"
            )
        state["values"].read_into(self._tree.nodes[self._tree.capacity :])
        # The sums are computed from the values as they always are, so they are the same bit for bit.
        self._tree.add_up()
        self._highest, self._n_draws = float(state["highest"]), int(state["n_draws"])
        self.cells[...] = state["cells"]
        self._pending = bool(state["pending"])
