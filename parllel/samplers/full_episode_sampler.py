"""Sampling of whole episodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parllel.agents.handler import Handler
from parllel.buffers.samples import Samples
from parllel.cages.cage_interface import CageInterface
from parllel.errors import EpisodeTooLongError
from parllel.samplers.lost_steps import check_no_restarts
from parllel.samplers.recurrent_sampler import RecurrentSampler
from parllel.transforms.transform import BatchTransform, StepTransform
from parllel.types import BatchSpec


class FullEpisodeSampler(RecurrentSampler):
    """Plays one whole episode of every environment per batch.

    `env.valid` [T, B] is false after the end of an episode; the batch ends with the longest episode.

    Args: as for `RecurrentSampler`, without decorrelation, as every batch begins with new episodes. T must be
        at least the length of the longest episode.

    Raises:
        ValueError: if cages, buffer and batch spec do not fit together.
        EpisodeTooLongError: from `collect_batch`, if an episode has not ended after T steps.
    """

    def __init__(
        self,
        batch_spec: BatchSpec,
        cages: Sequence[CageInterface],
        handler: Handler,
        samples: Samples,
        step_transforms: Sequence[StepTransform] = (),
        batch_transforms: Sequence[BatchTransform] = (),
    ) -> None:
        why = "an episode whose process died is not whole; use RecurrentSampler"
        check_no_restarts(cages, "FullEpisodeSampler", why)
        super().__init__(batch_spec, cages, handler, samples, step_transforms, batch_transforms)

    def _run(self) -> NDArray[np.bool_]:
        live = super()._run()
        # A truncated episode would look like a whole one, so no batch is returned.
        if live.any():
            raise EpisodeTooLongError(
                f"environments {np.flatnonzero(live).tolist()}: expected episodes of at most T = "
                f"{self.batch_spec.T} steps, but these have not ended; raise T or limit the episodes"
            )
        return live
