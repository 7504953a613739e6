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
    """Ask the handler for `agent.final_observation` [T, B, ...], what the agent would have seen after a cut.

    Where an episode was truncated, the next row of `agent.observation` has the first observation of another.
    Transforms of a sampler need only the value of the last one, which the handler writes to
    `agent.final_value`; a learner with other weights needs the observation itself. Other cells may hold
    anything. `EvaluatePolicy` reads the field.
    """

    reads = ()

    def fields(self, samples: Samples) -> Mapping[str, Tree]:
        """Declare cells like those of what the agent sees."""
        seen = getattr(samples.agent, "observation", None)
        # It is the raw observation unless a transform has declared another.
        like = samples.env.observation if seen is None else seen
        return {"agent.final_observation": buffer_map(_cell_of, like)}

    def transform_batch(self, samples: Samples) -> None:
        """Do nothing: the handler has written the observations."""


def _cell_of(leaf: Array) -> Field:
    return Field(np.zeros(leaf.shape[2:], leaf.dtype), dtype=leaf.dtype)
