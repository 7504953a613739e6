"""A replay that draws transitions with large errors more often."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.samples import Samples
from parllel.replays.priorities import Priorities
from parllel.replays.transition_replay import TransitionReplay
from parllel.types import State


class PrioritizedReplay(TransitionReplay):
    """Draws transitions in proportion to their priorities (PER, Schaul et al. 2016).

        samples = allocate_samples(..., transforms=[FinalObservations()], n_batches=10_000)
        replay = PrioritizedReplay(samples, batch_size=256, discount=0.99, seed=0, beta_draws=100_000)

    Transition i is drawn with probability `P(i) = p_i / sum_k p_k`, with replacement, where
    `p_i = (|error_i| + epsilon)**alpha` (eq. 1). `weight` is `(N P(i))**-beta`, divided by the largest weight
    of the batch (section 3.4). A transition that has not been drawn yet has the highest p_i so far.

    After each gradient step the algorithm passes the temporal-difference errors of the batch that was drawn
    last to `update_priorities`. Those of transitions that were overwritten in between are ignored.

    Args:
        samples, batch_size, discount, seed, n_step, reward: as for `UniformReplay`.
        alpha: how much priorities matter; 0 draws uniformly.
        beta: how much the weights correct for that; 1 corrects fully.
        final_beta: beta after `beta_draws` draws.
        beta_draws: number of draws, which is the number of gradient steps, over which the replay itself
            changes beta linearly. None keeps it.
        epsilon: added to errors, so that every transition can be drawn again.

    Raises:
        TypeError: if `samples` is not a Samples.
        ValueError: for numbers out of range, or a buffer that does not fit, see `UniformReplay`.
    """

    def __init__(
        self,
        samples: Samples,
        *,
        batch_size: int,
        discount: float,
        seed: Any,
        n_step: int = 1,
        reward: str = "env.reward",
        alpha: float = 0.6,
        beta: float = 0.4,
        final_beta: float = 1.0,
        beta_draws: int | None = None,
        epsilon: float = 1e-6,
    ) -> None:
        super().__init__(
            samples,
            batch_size=batch_size,
            discount=discount,
            seed=seed,
            n_step=n_step,
            reward=reward,
        )
        from parllel.replays import compiled  # imports numba

        self._unusable = compiled.UNUSABLE
        stored = self._stored
        self._priorities = Priorities(
            type(self).__name__,
            stored.R * stored.B,
            self.batch_size,
            alpha=alpha,
            beta=beta,
            final_beta=final_beta,
            beta_draws=beta_draws,
            epsilon=epsilon,
        )
        # The rows that were usable after the last `add`, by when they were added.
        self._usable = (0, 0)

    @property
    def beta(self) -> float:
        """The exponent of the importance weights of the next draw."""
        return self._priorities.beta

    def update_priorities(self, errors: NDArray[Any]) -> None:
        """Set the priorities of the transitions that were drawn last.

        errors: [n], temporal-difference errors, of which the absolute values are used.

        Raises:
            ValueError: for errors of another shape, or that are not finite; nothing is changed then.
            WrongStateError: if nothing was drawn yet.
        """
        self._priorities.update(errors)

    def _choose(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> None:
        self._priorities.draw(self._generator, self._drawn.weight)
        np.divmod(self._priorities.cells, self._stored.B, rows, columns)

    def _added(self, start: int, stop: int) -> None:
        stored, priorities, B = self._stored, self._priorities, self._stored.B
        priorities.forget(start * B, stop * B)
        (old_low, old_high), (low, high) = self._usable, stored.usable
        # First those that leave: new rows take the places of some of them.
        for first, last in self._places(old_low, min(low, old_high)):
            priorities.exclude(first * B, last * B)
        # The last row before the batch again, as its outcome may have been lost.
        before = stored.n_added - (stop - start) - 1
        for first, _ in self._places(max(before, low), min(before + 1, old_high)):
            for column in np.flatnonzero(stored.link[first] == self._unusable).tolist():
                priorities.exclude(first * B + column, first * B + column + 1)
        for first, last in self._places(max(old_high, low), high):
            usable = stored.link[first:last] != self._unusable
            priorities.admit(first * B, usable.reshape(-1))
        self._usable = low, high

    def _places(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return where rows are in the buffer, given by when they were added, as one or two ranges."""
        if start >= stop:
            return []
        R = self._stored.R
        first, n = start % R, stop - start
        if first + n <= R:
            return [(first, first + n)]
        return [(first, R), (0, first + n - R)]

    def state(self) -> State:
        """Return the stored rows, as views of the memory, the priorities, and the state of the generator."""
        return {**super().state(), "priorities": self._priorities.state()}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. See `Replay.load_state`."""
        super().load_state(state)
        self._priorities.load_state(state["priorities"])
        self._usable = self._stored.usable
