"""Normalise rewards by the standard deviation of returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.allocation import Field
from parllel.buffers.samples import Samples
from parllel.transforms.arguments import (
    check_finite_positive,
    check_fraction,
    check_positive,
    for_loop,
    for_output,
)
from parllel.transforms.batch_memo import BatchMemo
from parllel.transforms.running_statistics import RunningMeanStd
from parllel.transforms.transform import BatchTransform, Gather, body_of, optional_body_of
from parllel.types import State


class NormalizeRewards(BatchTransform):
    """Divides rewards by the running standard deviation of the discounted return.

    Here the return of an environment is the discounted sum of its past rewards, `g = discount * g +
    r`. It is carried over from batch to batch and set to zero after the end of an episode (Engstrom
    et al. 2020; as in `VecNormalize` of Stable-Baselines3). The statistics include the current
    batch. Rewards are not centred, because adding a constant to each reward would favour longer or
    shorter episodes. If there is a field `env.valid`, only valid entries count for the statistics,
    and the values written to other entries are meaningless.

    Args:
        discount: gamma of the return, in [0, 1].
        source: path of the reward, [T, B].
        target: path of the field to write, float32 [T, B].
        done: path of a field that is true where an episode ends, bool [T, B].
        clip: largest magnitude to write; infinity sets no limit.
        epsilon: added to the variance.

    Raises:
        ValueError: if an argument is outside its range. `bind` raises it if B has changed since the
            last batch.
    """

    def __init__(
        self,
        discount: float,
        source: str = "env.reward",
        target: str = "env.normalized_reward",
        done: str = "env.done",
        # The defaults of `VecNormalize` of Stable-Baselines3.
        clip: float = 10.0,
        epsilon: float = 1e-8,
    ) -> None:
        name = "NormalizeRewards"
        self.discount = check_fraction(name, "discount", discount)
        self._clip = check_positive(name, "clip", clip)
        self._epsilon = check_finite_positive(name, "epsilon", epsilon)
        self._source, self._target, self._done_path = source, target, done
        self.reads = (source, done)
        self._statistics = RunningMeanStd((), f"{name}: returns of {source}")
        self._carried: NDArray[np.float64] | None = None
        self._returns, self._all_valid = np.zeros((0, 0)), np.ones((0, 0), bool)
        self._views = BatchMemo(self._views_of)

    def fields(self, samples: Samples) -> Mapping[str, Field]:
        """Declare the normalised reward."""
        return {self._target: Field(np.float32(0.0))}

    def _views_of(self, samples: Samples) -> tuple[NDArray[Any], ...]:
        name = "NormalizeRewards"
        reward = body_of(samples, self._source)
        shape = reward.shape
        if len(shape) != 2:
            raise ValueError(f"{name}: {self._source}: expected shape [T, B], got {shape}")
        normalized = for_output(name, self._target, body_of(samples, self._target), shape)
        valid = optional_body_of(samples, "env.valid")
        if self._returns.shape != shape:  # one for all batches of the buffer
            self._returns, self._all_valid = np.zeros(shape), np.ones(shape, bool)
        valid = self._all_valid if valid is None else valid
        if self._carried is None:
            self._carried = np.zeros(shape[1])
        elif self._carried.shape != shape[1:]:
            raise ValueError(
                f"{name}: {self._source}: expected B={len(self._carried)} as in the last batch, whose "
                f"returns continue, got B={shape[1]}"
            )
        return reward, body_of(samples, self._done_path), valid, normalized

    def transform_batch(self, samples: Samples) -> None:
        """Update the statistics with this batch, then write its normalised rewards."""
        from parllel.transforms import compiled

        reward, done, valid, normalized = self._views.of(samples)
        name, shape = "NormalizeRewards", reward.shape
        reward = for_loop(name, self._source, reward, shape, np.float32)
        done = for_loop(name, self._done_path, done, shape, bool)
        valid = for_loop(name, "env.valid", valid, shape, bool)
        assert self._carried is not None
        # On a copy: if the statistics refuse the batch, nothing may have changed.
        carried, returns = self._carried.copy(), self._returns
        compiled.running_returns(reward, done, valid, self.discount, carried, returns)
        self._statistics.update(returns.reshape(-1), valid.reshape(-1))
        self._carried = carried
        scale = np.float32(1.0 / np.sqrt(self._statistics.var + self._epsilon))
        np.multiply(reward, scale, out=normalized)
        np.clip(normalized, -self._clip, self._clip, out=normalized)

    @property
    def stats(self) -> dict[str, Any]:
        """Mean and standard deviation of the discounted return."""
        return {"mean": float(self._statistics.mean), "std": float(self._statistics.std)}

    def forget(self, columns: NDArray[np.intp]) -> None:
        """Start the returns of these columns [n] from zero."""
        if self._carried is not None:
            self._carried[columns] = 0.0

    def share_statistics(self, gather: Gather) -> None:
        """Compute the standard deviation from the returns of all learners."""
        self._statistics.gather = gather

    def state(self) -> State:
        """Return the statistics, and the returns of the episodes in progress."""
        carried = None if self._carried is None else self._carried.copy()
        return {"statistics": self._statistics.state(), "carried": carried}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. Raises ValueError if its B differs."""
        # All is checked before anything is loaded: half a state would be worse than the old one.
        carried = state["carried"]
        if carried is not None:
            carried = np.array(carried, np.float64)
            if self._carried is not None and carried.shape != self._carried.shape:
                raise ValueError(
                    f"NormalizeRewards: state: expected B={len(self._carried)}, got {carried.shape}"
                )
        self._statistics.load_state(state["statistics"])
        self._carried = carried
        self._views.forget()  # making them again starts returns from zero where the state has none
