"""Weigh steps of another policy by how likely the learner's policy is to act in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from parllel.buffers.allocation import Field
from parllel.buffers.samples import Samples
from parllel.transforms.arguments import check_positive
from parllel.transforms.batch_memo import BatchMemo
from parllel.transforms.transform import BatchTransform, body_of, optional_body_of

# The logarithm of nearly the largest float32.
_LOG_MOST = 88.7
LOG_PROBS = ("agent.learner_log_prob", "agent.agent_info.log_prob")


class ImportanceWeights(BatchTransform):
    """Writes `agent.importance_weight`, the ratio of the two policies' probabilities of each action.

    The weight is min(clip, pi / mu), [T, B] float32, where pi is the learner's policy and mu the
    policy that sampled. It is 0 where a field `env.valid` is false. If `agent.importance_weight`
    exists, PPO keeps the policy near pi, the learner's policy at the start of the update, and
    weights each step. This is the decoupled objective of Hilton et al. 2022, "Batch size-invariance
    for policy optimization". Without the field, PPO keeps the policy near mu, which slows learning
    down more the older mu is. However, mu also limits how far several updates can move the policy
    before any batch shows their effect, so PPO needs a smaller `ratio_clip` when weights are used.
    To correct values and advantages, see EstimateVtrace.

    Reads `agent.agent_info.log_prob` and `agent.learner_log_prob`.

    Args:
        clip: maximum weight, above 0. Truncation bounds the variance at the cost of some bias
            towards the policy that sampled.

    Raises:
        ValueError: if clip is not above zero.
    """

    def __init__(self, clip: float = 1.0) -> None:
        self._log_clip = min(np.log(check_positive("ImportanceWeights", "clip", clip)), _LOG_MOST)
        self.reads = LOG_PROBS
        self._views = BatchMemo(self._views_of)
        self._stats: dict[str, Any] = {}

    def fields(self, samples: Samples) -> Mapping[str, Field]:
        """Declare the weight."""
        return {"agent.importance_weight": Field(np.float32(0.0))}

    def _views_of(self, samples: Samples) -> tuple[Any, ...]:
        paths = (*LOG_PROBS, "agent.importance_weight")
        return *(body_of(samples, path) for path in paths), optional_body_of(samples, "env.valid")

    def transform_batch(self, samples: Samples) -> None:
        """Write the weights of the whole batch."""
        log_prob, behaviour, weight, valid = self._views.of(samples)
        log_ratio = np.subtract(log_prob, behaviour, dtype=np.float64)
        # Clipped before the exponential, which would overflow.
        np.minimum(log_ratio, self._log_clip, out=log_ratio)
        np.exp(log_ratio, out=weight, casting="same_kind")
        if valid is not None:
            weight[~valid] = 0.0
        counted = weight if valid is None else weight[valid]
        # Of a batch without valid cells there is no mean, of which numpy would warn.
        self._stats = {}
        if counted.size:
            # Rounded as the weights are: none of them would reach a clip that float32 rounds down.
            most = np.float32(np.exp(self._log_clip))
            self._stats["weight"] = float(counted.mean(dtype=np.float64))
            self._stats["clipped"] = float((counted >= most).mean())

    @property
    def stats(self) -> dict[str, Any]:
        """`weight`, the mean of the last batch, and `clipped`, the share of weights at the clip."""
        return dict(self._stats)
