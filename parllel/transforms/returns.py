"""Compute discounted returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.allocation import Field
from parllel.buffers.samples import Samples
from parllel.transforms.arguments import check_fraction, for_output, for_steps
from parllel.transforms.batch_memo import BatchMemo
from parllel.transforms.transform import BatchTransform, body_of, row_after


def discounted_returns(
    reward: NDArray[Any],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    final_value: NDArray[Any],
    bootstrap_value: NDArray[Any],
    discount: float,
    out_return: NDArray[np.float32],
) -> None:
    """Write discounted returns (Sutton and Barto 2018, eq. 3.9) into `out_return`.

    reward, final_value, out_return: [T, B] float32.  terminated, truncated: [T, B] bool.
    bootstrap_value: [B] float32, the values of the observations after the last row.
    The return after a step is 0 where the step terminated the episode, `final_value` where the step
    truncated it, and otherwise the return of the next row. Sums are computed in float64. Inputs of
    other dtypes are converted.

    Raises:
        ValueError: if shapes differ, or the output is not writable float32.
    """
    from parllel.transforms import compiled

    name = "discounted_returns"
    reward, ends = for_steps(name, reward, terminated, truncated, final_value, bootstrap_value)
    compiled.sum_td_errors(
        reward,
        *(None, None, None),  # values of 0, one policy
        *ends,
        *(discount, 1.0, 1.0, 1.0),
        None,
        for_output(name, "out_return", out_return, reward.shape),
    )


class DiscountedReturns(BatchTransform):
    """Writes `agent.return_`, the discounted sum of rewards up to the end of the episode.

    If an episode is truncated, or not over at the end of the batch, a value estimate replaces the
    missing rewards. For this, the transform declares `agent.final_value`, which the handler fills,
    and reads the padding row T of `value`.

    Args:
        discount: gamma, in [0, 1].
        reward: path of the reward field, [T, B].
        value: path of the value field, [T, B] with padding; None for agents without a value function, where
            missing rewards count as 0.

    Raises:
        ValueError: if discount is outside [0, 1].
    """

    column_wise = True

    def __init__(
        self,
        discount: float,
        reward: str = "env.reward",
        value: str | None = "agent.agent_info.value",
    ) -> None:
        self.discount = check_fraction("DiscountedReturns", "discount", discount)
        self._reward, self._value = reward, value
        # Without values, the return of an episode whose process died would lack its later rewards.
        self.skips_invalid = value is not None
        values = () if value is None else (value,)
        self.reads = (reward, "env.terminated", "env.truncated", *values)
        self._views = BatchMemo(self._views_of)

    def fields(self, samples: Samples) -> Mapping[str, Field]:
        """Declare the return and, with a value function, the final value."""
        names = ("return_",) if self._value is None else ("return_", "final_value")
        return {f"agent.{name}": Field(np.float32(0.0)) for name in names}

    def _views_of(self, samples: Samples) -> tuple[NDArray[Any], ...]:
        reward = body_of(samples, self._reward)
        if self._value is None:
            # Zeros in their places, so that one compiled loop serves both kinds of agent.
            final, bootstrap = np.zeros_like(reward), np.zeros_like(reward[0])
        else:
            final = body_of(samples, "agent.final_value")
            bootstrap = row_after(samples, self._value)
        return (
            reward,
            body_of(samples, "env.terminated"),
            body_of(samples, "env.truncated"),
            final,
            bootstrap,
            body_of(samples, "agent.return_"),
        )

    def transform_batch(self, samples: Samples) -> None:
        """Write the returns of the whole batch."""
        reward, terminated, truncated, final, bootstrap, return_ = self._views.of(samples)
        discounted_returns(reward, terminated, truncated, final, bootstrap, self.discount, return_)
