"""Estimate values and advantages from steps of another policy by V-trace.

The behaviour policy collected the samples; the learner's policy is improved with them.
`parllel.torch.EvaluatePolicy` writes the learner's log probabilities and values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.allocation import Field
from parllel.buffers.samples import Samples
from parllel.transforms.arguments import (
    check_fraction,
    check_positive,
    for_loop,
    for_output,
    for_steps,
)
from parllel.transforms.batch_memo import BatchMemo
from parllel.transforms.transform import BatchTransform, body_of, optional_body_of, row_after

VALUE, FINAL_VALUE = "agent.learner_value", "agent.learner_final_value"
LOG_PROBS = ("agent.learner_log_prob", "agent.agent_info.log_prob")


def vtrace(
    reward: NDArray[Any],
    value: NDArray[Any],
    log_prob: NDArray[Any],
    behaviour_log_prob: NDArray[Any],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    final_value: NDArray[Any],
    bootstrap_value: NDArray[Any],
    discount: float,
    gae_lambda: float,
    rho_clip: float,
    c_clip: float,
    out_advantage: NDArray[np.float32],
    out_return: NDArray[np.float32],
) -> None:
    """Write V-trace targets (Espeholt et al. 2018, eq. 1) into `out_return`, and advantages.

    reward, value, log_prob, behaviour_log_prob, final_value, out_advantage, out_return: [T, B] float32.
    terminated, truncated: [T, B] bool.  bootstrap_value: [B] float32, the values of the observations after
    the last row.

    With ratio = exp(log_prob - behaviour_log_prob), rho = min(rho_clip, ratio) and
    c = gae_lambda * min(c_clip, ratio) (Remark 2), and from the last row to the first:

        error_t     = reward_t + discount * V(x_{t+1}) - V(x_t)
        return_t    = V(x_t) + rho_t * error_t + discount * c_t * (return_{t+1} - V(x_{t+1}))
        advantage_t = error_t + discount * gae_lambda * (return_{t+1} - V(x_{t+1}))

    With a lambda of 1 the advantage is the one in section 4.2, reward_t + discount * return_{t+1} -
    V(x_t), without the factor rho_t. The ratio in PPO's loss, or an importance weight, takes the
    place of this factor. Where both policies are the same and both clips are at least 1, the
    advantages equal those of `estimate_advantage`, and the returns are the advantages plus the
    values.

    The value after a step is 0 where the step terminated the episode, `final_value` where the step
    truncated it, and otherwise the value of the next row. A step that does both counts as
    terminated. Sums do not extend over the end of an episode and are computed in float64. Inputs of
    other dtypes are converted.

    Raises:
        ValueError: if shapes differ, or an output is not writable float32.
    """
    # Imported when called, as it imports numba.
    from parllel.transforms import compiled

    name = "vtrace"
    reward, ends = for_steps(name, reward, terminated, truncated, final_value, bootstrap_value)
    compiled.sum_td_errors(
        reward,
        for_loop(name, "value", value, reward.shape, np.float32),
        for_loop(name, "log_prob", log_prob, reward.shape, np.float32),
        for_loop(name, "behaviour_log_prob", behaviour_log_prob, reward.shape, np.float32),
        *ends,
        *(discount, gae_lambda, rho_clip, c_clip),
        for_output(name, "out_advantage", out_advantage, reward.shape),
        for_output(name, "out_return", out_return, reward.shape),
    )


class EstimateVtrace(BatchTransform):
    """Writes V-trace targets for the value function (Espeholt et al. 2018), and advantages; see `vtrace`.

    Targets and advantages are estimates for the learner's policy, made from the data of the policy
    that sampled. Use it in place of `EstimateAdvantage` to correct values and advantages, which
    neither PPO's ratio nor ImportanceWeights corrects.

    Reads `env.terminated` and `env.truncated`; the log probabilities of both policies,
    `agent.agent_info.log_prob` and `agent.learner_log_prob`; and the learner's values, `agent.learner_value`
    with its padding row T, and `agent.learner_final_value`. Writes `agent.advantage` and `agent.return_`,
    [T, B] float32, 0 where a field `env.valid` is false.

    Args:
        discount: gamma, in [0, 1].
        rho_clip: maximum weight of an error, above 0. If it is finite, the targets are the values
            of a policy between the two policies, and the variance is bounded.
        c_clip: maximum weight, per step, with which an error counts for earlier steps; above 0 and
            at most `rho_clip`.
        gae_lambda: lambda, in [0, 1]. The paper's experiments use 1.
        reward: path of the reward field, [T, B].

    Raises:
        ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        discount: float,
        *,
        rho_clip: float = 1.0,
        c_clip: float = 1.0,
        gae_lambda: float = 1.0,
        reward: str = "env.reward",
    ) -> None:
        name = type(self).__name__
        self.discount = check_fraction(name, "discount", discount)
        self._gae_lambda = check_fraction(name, "gae_lambda", gae_lambda)
        self._rho_clip = check_positive(name, "rho_clip", rho_clip)
        self._c_clip = check_positive(name, "c_clip", c_clip)
        if c_clip > rho_clip:  # the paper assumes it, for convergence
            raise ValueError(f"{name}: c_clip: expected at most rho_clip {rho_clip}, got {c_clip}")
        ends = ("env.terminated", "env.truncated")
        # In the order of the arguments of `vtrace`.
        self._inputs = (reward, VALUE, *LOG_PROBS, *ends, FINAL_VALUE)
        self.reads = self._inputs
        self._views = BatchMemo(self._views_of)

    def fields(self, samples: Samples) -> Mapping[str, Field]:
        """Declare advantage and return."""
        return {f"agent.{name}": Field(np.float32(0.0)) for name in ("advantage", "return_")}

    def _views_of(self, samples: Samples) -> tuple[Any, ...]:
        return (
            [*(body_of(samples, path) for path in self._inputs), row_after(samples, VALUE)],
            body_of(samples, "agent.advantage"),
            body_of(samples, "agent.return_"),
            optional_body_of(samples, "env.valid"),
        )

    def transform_batch(self, samples: Samples) -> None:
        """Write advantages and returns of the whole batch."""
        inputs, advantage, return_, valid = self._views.of(samples)
        reward, value, log_prob, behaviour, terminated, truncated, final, bootstrap = inputs
        vtrace(
            reward,
            value,
            log_prob,
            behaviour,
            terminated,
            truncated,
            final,
            bootstrap,
            self.discount,
            self._gae_lambda,
            self._rho_clip,
            self._c_clip,
            advantage,
            return_,
        )
        if valid is not None:
            # Agent outputs are arbitrary in cells without a step.
            advantage[~valid] = return_[~valid] = 0.0
