"""Estimate advantages by generalised advantage estimation (GAE)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.allocation import Field
from parllel.buffers.samples import Samples
from parllel.transforms.arguments import check_fraction, for_loop, for_output, for_steps
from parllel.transforms.batch_memo import BatchMemo
from parllel.transforms.transform import BatchTransform, body_of, row_after


def estimate_advantage(
    reward: NDArray[Any],
    value: NDArray[Any],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    final_value: NDArray[Any],
    bootstrap_value: NDArray[Any],
    discount: float,
    gae_lambda: float,
    out_advantage: NDArray[np.float32],
) -> None:
    """Write generalised advantage estimates (Schulman et al. 2016, eq. 16) into `out_advantage`.

    reward, value, final_value, out_advantage: [T, B] float32.  terminated, truncated: [T, B] bool.
    bootstrap_value: [B] float32, the values of the observations after the last row.
    The value after a step is 0 where the step terminated the episode, `final_value` where the step
    truncated it, and otherwise the value of the next row. A step that does both counts as
    terminated. Sums do not extend over the end of an episode and are computed in float64. Inputs of
    other dtypes are converted.

    Raises:
        ValueError: if shapes differ, or the output is not writable float32.
    """
    # Imported when called, as it imports numba.
    from parllel.transforms import compiled

    name = "estimate_advantage"
    reward, ends = for_steps(name, reward, terminated, truncated, final_value, bootstrap_value)
    compiled.sum_td_errors(
        reward,
        for_loop(name, "value", value, reward.shape, np.float32),
        *(None, None),  # one policy
        *ends,
        *(discount, gae_lambda, 1.0, 1.0),
        for_output(name, "out_advantage", out_advantage, reward.shape),
        None,
    )


class EstimateAdvantage(BatchTransform):
    """Writes advantages (Schulman et al. 2016), and returns, which are the targets of the value function.

    Reads `env.terminated`, `env.truncated`, and `agent.agent_info.value`, whose padding row T holds
    the values after the batch. Writes `agent.advantage` and `agent.return_` = advantage + value, [T, B]
    float32, and declares `agent.final_value`, which the handler fills.

    Args:
        discount: gamma, in [0, 1].
        gae_lambda: lambda, in [0, 1]; 1 gives discounted returns minus values, 0 one-step TD errors.
        reward: path of the reward field, [T, B].

    Raises:
        ValueError: if an argument is outside [0, 1].
    """

    column_wise = True

    def __init__(self, discount: float, gae_lambda: float, reward: str = "env.reward") -> None:
        self.discount = check_fraction("EstimateAdvantage", "discount", discount)
        self._gae_lambda = check_fraction("EstimateAdvantage", "gae_lambda", gae_lambda)
        self._reward = reward
        # Not `agent.final_value`, which is a field of this transform, though the handler fills it.
        self.reads = (reward, "env.terminated", "env.truncated", "agent.agent_info.value")
        self._views = BatchMemo(self._views_of)

    def fields(self, samples: Samples) -> Mapping[str, Field]:
        """Declare advantage, return and final value."""
        names = ("advantage", "return_", "final_value")
        return {f"agent.{name}": Field(np.float32(0.0)) for name in names}

    def _views_of(self, samples: Samples) -> tuple[NDArray[Any], ...]:
        return (
            # In the order in which `transform_batch` unpacks them: inputs, then outputs.
            body_of(samples, self._reward),
            body_of(samples, "agent.agent_info.value"),
            body_of(samples, "env.terminated"),
            body_of(samples, "env.truncated"),
            body_of(samples, "agent.final_value"),
            row_after(samples, "agent.agent_info.value"),
            body_of(samples, "agent.advantage"),
            body_of(samples, "agent.return_"),
        )

    def transform_batch(self, samples: Samples) -> None:
        """Write advantages and returns of the whole batch."""
        *inputs, advantage, return_ = self._views.of(samples)
        reward, value, terminated, truncated, final, bootstrap = inputs
        estimate_advantage(
            reward,
            value,
            terminated,
            truncated,
            final,
            bootstrap,
            self.discount,
            self._gae_lambda,
            advantage,
        )
        np.add(advantage, value, out=return_, casting="same_kind")
