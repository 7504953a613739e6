"""Normalise rewards by the standard deviation of returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers import Field, Samples
from parllel.transforms.arguments import (
    check_finite_positive,
    check_fraction,
    check_positive,
    for_loop,
    for_output,
)
from parllel.transforms.running_statistics import RunningMeanStd
from parllel.transforms.transform import BatchTransform, body_of, optional_body_of
from parllel.types import State


class NormalizeRewards(BatchTransform):
    """Divide rewards by the running standard deviation of the discounted return.

    The return of an environment is here the discounted sum of its past rewards, `g = discount * g + r`,
    carried from batch to batch and set to zero after the end of an episode (Engstrom et al. 2020; as in
    `VecNormalize` of Stable-Baselines3). The statistics include the present batch. Rewards are not centred,
    as a constant added to each would favour longer or shorter episodes. If there is a field `env.valid`, the
    statistics are those of valid entries; what is written to the other entries has no meaning.

    Args:
        discount: gamma of the return, in [0, 1].
        source: path of the reward, [T, B].
        target: path of the field to write, float32 [T, B].
        done: path of the field that is true where an episode ends, bool [T, B].
        clip: largest magnitude to write; infinity for no limit.
        epsilon: added to the variance.

    Raises:
        ValueError: if an argument is outside its range.
    """

    def __init__(
        self,
        discount: float,
        source: str = "env.reward",
        target: str = "env.normalized_reward",
        done: str = "env.done",
        clip: float = 10.0,
        epsilon: float = 1e-8,
    ) -> None:
        name = "NormalizeRewards"
        self._discount = check_fraction(name, "discount", discount)
        self._clip = check_positive(name, "clip", clip)
        self._epsilon = check_finite_positive(name, "epsilon", epsilon)
        self._source, self._target, self._done_path = source, target, done
        self.reads = (source, done)
        self._statistics = RunningMeanStd((), f"{name}: returns of {source}")
        self._carried: NDArray[np.float64] | None = None
        self._samples: Samples | None = None

    def fields(self, samples: Samples) -> Mapping[str, Field]:
        """Declare the normalised reward."""
        return {self._target: Field(np.float32(0.0))}

    def bind(self, samples: Samples) -> None:
        """Make views of the fields; raise ValueError if B has changed since the last batch."""
        name = "NormalizeRewards"
        self._reward = body_of(samples, self._source)
        shape = self._reward.shape
        if len(shape) != 2:
            raise ValueError(f"{name}: {self._source}: expected shape [T, B], got {shape}")
        self._normalized = for_output(name, self._target, body_of(samples, self._target), shape)
        self._done = body_of(samples, self._done_path)
        valid = optional_body_of(samples, "env.valid")
        self._valid = np.ones(shape, bool) if valid is None else valid
        if self._carried is None:
            self._carried = np.zeros(shape[1])
        elif self._carried.shape != shape[1:]:
            raise ValueError(
                f"{name}: {self._source}: expected B={len(self._carried)} as in the last batch, whose "
                f"returns continue, got B={shape[1]}"
            )
        self._returns = np.zeros(shape)
        self._samples = samples

    def transform_batch(self, samples: Samples) -> None:
        """Update the statistics with this batch, then write its normalised rewards."""
        from parllel.transforms import compiled

        if samples is not self._samples:
            self.bind(samples)
        name, shape = "NormalizeRewards", self._returns.shape
        reward = for_loop(name, self._source, self._reward, shape, np.float32)
        done = for_loop(name, self._done_path, self._done, shape, bool)
        valid = for_loop(name, "env.valid", self._valid, shape, bool)
        assert self._carried is not None
        # On a copy: if `update` raises, because rewards are not finite, nothing must have changed.
        carried = self._carried.copy()
        compiled.running_returns(reward, done, valid, self._discount, carried, self._returns)
        self._statistics.update(self._returns.reshape(-1), valid.reshape(-1))
        self._carried = carried
        scale = np.float32(1.0 / np.sqrt(self._statistics.var + self._epsilon))
        np.multiply(reward, scale, out=self._normalized)
        np.clip(self._normalized, -self._clip, self._clip, out=self._normalized)

    @property
    def stats(self) -> dict[str, Any]:
        """Mean and standard deviation of the discounted return."""
        return {"mean": float(self._statistics.mean), "std": float(self._statistics.std)}

    def forget(self, columns: NDArray[np.intp]) -> None:
        """Start the returns of these columns [n] from zero."""
        if self._carried is not None:
            self._carried[columns] = 0.0

    def state(self) -> State:
        """Return the statistics, and the returns so far of episodes in progress."""
        carried = None if self._carried is None else self._carried.copy()
        return {"statistics": self._statistics.state(), "carried": carried}

    def load_state(self, state: State) -> None:
        """Restore what `state` returned; raise ValueError if it has another B."""
        carried = state["carried"]
        if carried is not None:
            carried = np.array(carried, np.float64)
            if self._carried is not None and carried.shape != self._carried.shape:
                raise ValueError(
                    f"NormalizeRewards: state: expected B={len(self._carried)}, got {carried.shape}"
                )
        self._statistics.load_state(state["statistics"])
        self._carried = carried
        self._samples = None  # to bind again, which makes returns of zero where the state has none
