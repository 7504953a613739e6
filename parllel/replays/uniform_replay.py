"""A replay in which every stored transition is drawn with the same probability."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.replays.transition_replay import TransitionReplay


class UniformReplay(TransitionReplay):
    """Draws transitions uniformly, with replacement (Lin 1992; Mnih et al. 2015).

        samples = allocate_samples(..., transforms=[FinalObservations()], n_batches=10_000)
        replay = UniformReplay(samples, batch_size=256, discount=0.99, seed=0)

    Args:
        samples: the memory, a buffer of several batches, with the field of `FinalObservations`.
        batch_size: number of transitions that `sample` draws.
        discount: discount factor per step, 0 to 1.
        seed: seed of the generator that draws.
        n_step: number of rewards that a transition adds up.
        reward: path of the rewards, for example that of a transform that clips them.

    Steps that are not in `env.valid` are never drawn, nor is the oldest row of a full memory. The newest
    `n_step - 1` rows are drawn after the next batch is added.

    Raises:
        TypeError: if `samples` is not a Samples.
        ValueError: for numbers out of range, or a buffer that does not fit: with one batch, fields that are
            missing, or too few rows for `n_step`.
    """

    def __init__(self, *arguments: Any, **named_arguments: Any) -> None:
        super().__init__(*arguments, **named_arguments)
        from parllel.replays import compiled  # imports numba

        self._keep_usable = compiled.keep_usable
        self._uniform: NDArray[np.float64] = np.empty(self.batch_size)

    def _choose(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> None:
        stored, drawn = self._stored, self._uniform
        low, high = stored.usable
        first, n_cells, kept = low % stored.R, (high - low) * stored.B, 0
        # Steps that cannot be drawn are rare; drawing again keeps all others equally likely.
        while kept < len(rows):
            self._generator.random(out=drawn)
            kept = self._keep_usable(drawn, first, n_cells, stored.link, rows, columns, kept)
