"""Normalise the advantages of each agent to zero mean and unit variance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.samples import Samples
from parllel.transforms.arguments import check_finite_positive
from parllel.transforms.batch_memo import BatchMemo
from parllel.transforms.multi_agent_advantage import agents_of, alive_of
from parllel.transforms.transform import BatchTransform, body_of, optional_body_of


class NormalizeMultiAgentAdvantage(BatchTransform):
    """Normalise `agent.advantage.<agent>` over the batch, in place, for each agent separately.

    Separately, as agents may have rewards of different scales. If there are fields `env.valid` or
    `env.env_info.alive.<agent>`, the mean and standard deviation are those of entries where both are true,
    and the other entries become 0.

    Args:
        epsilon: added to the standard deviation.

    Raises:
        ValueError: if epsilon is not above zero.
    """

    reads = ("agent.advantage",)

    def __init__(self, epsilon: float = 1e-8) -> None:
        self._epsilon = check_finite_positive(type(self).__name__, "epsilon", epsilon)
        self._views = BatchMemo(self._views_of)

    def bind(self, samples: Samples) -> None:
        """Make views of the advantages, and of the masks of entries that count."""
        self._views.bind(samples)

    def use_batch(self, samples: Samples, number: int) -> None:
        """Look up the views of a batch."""
        self._views.use_batch(samples, number)

    def _views_of(
        self, samples: Samples
    ) -> list[tuple[NDArray[np.float32], list[NDArray[np.bool_]]]]:
        valid = optional_body_of(samples, "env.valid")
        agents = []
        for agent in agents_of(samples):
            masks = [mask for mask in (valid, alive_of(samples, agent)) if mask is not None]
            agents.append((body_of(samples, f"agent.advantage.{agent}"), masks))
        return agents

    def transform_batch(self, samples: Samples) -> None:
        """Normalise the whole batch; without entries that count, all of an agent's become 0."""
        for advantage, masks in self._views.of(samples):
            counts = np.logical_and.reduce(masks) if masks else np.ones(advantage.shape, bool)
            # In float64: a large mean rounded to float32 would leave an offset.
            chosen = advantage[counts].astype(np.float64)
            advantage[~counts] = 0.0
            if chosen.size:
                advantage[counts] = (chosen - chosen.mean()) / (chosen.std() + self._epsilon)
