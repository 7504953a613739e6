"""Keep the observations at which episodes were cut, for values that are estimated elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parllel.arrays.array import Array
from parllel.buffers.allocation import Field
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_map
from parllel.transforms.transform import BatchTransform
from parllel.types import Tree


class FinalObservations(BatchTransform):
    """Declares `agent.final_observation` [T, B, ...], which the handler fills after truncated episodes.

    Where an episode was truncated, the next row of `agent.observation` holds the first observation
    of another episode. The transforms of a sampler need only the value of the final observation,
    which the handler writes to `agent.final_value`. A learner with different weights needs the
    observation itself, as the agent would have seen it. The content of all other cells is
    undefined. `EvaluatePolicy` and replays read the field.

    A buffer of several batches holds this field only for the batch that was written last. A replay
    keeps the cells of truncated episodes itself.
    """

    reads = ()

    column_wise = True

    def fields(self, samples: Samples) -> Mapping[str, Tree]:
        """Declare a field with cells like those of the agent's observation."""
        seen = getattr(samples.agent, "observation", None)
        # It is the raw observation unless a transform has declared another.
        like = samples.env.observation if seen is None else seen
        return {"agent.final_observation": buffer_map(_cell_of, like)}

    def transform_batch(self, samples: Samples) -> None:
        """Do nothing, because the handler has already written the observations."""


def _cell_of(leaf: Array) -> Field:
    return Field(np.zeros(leaf.shape[2:], leaf.dtype), dtype=leaf.dtype, current_batch_only=True)
