"""True last observations of episodes: stacked for the agent, and written to next observations.

If an episode ends in row t, row t + 1 of `env.observation` already holds the observation after the reset. The
true last one is kept separately, as a FinalObservation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.cages.stepping.step_result import FinalObservation
from parllel.types import Tree


def stack_final(final: Sequence[FinalObservation], like: Tree) -> Tree:
    """Stack the N observations of `final` into a tree of arrays [N, ...] with the dtypes of `like`."""
    parts = [f.observation for f in final]
    return buffer_map(
        lambda array, *values: np.stack(values).astype(array.dtype, copy=False), like, *parts
    )


def places_of(final: Sequence[FinalObservation]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows and columns of final observations, [N] intp each."""
    # Reshaped for an empty list, from which numpy makes an array without columns.
    places = np.array([(f.row, f.column) for f in final], np.intp).reshape(-1, 2)
    return places[:, 0], places[:, 1]


def has_next_observations(samples: Samples) -> bool:
    """Return whether the samples have a field `env.next_observation`."""
    return getattr(samples.env, "next_observation", None) is not None


def write_next_observations(samples: Samples, final: Sequence[FinalObservation]) -> None:
    """Write the observation after each step to `env.next_observation`.

    This is the next row of `env.observation` or, if the episode ended and the environment was reset, the
    entry of `final`.
    """
    observation, out = samples.env.observation, samples.env.next_observation
    pairs = list(zip(buffer_leaves(out), buffer_leaves(observation), strict=True))
    for (_, mine), (_, seen) in pairs:
        # Up to row T, the first padding row, which holds the observation after the batch.
        np.copyto(np.asarray(mine), np.asarray(seen[1 : len(seen) + 1]))
    if final:
        rows, columns = places_of(final)
        stacked = buffer_leaves(stack_final(final, observation))
        for ((_, mine), _), (_, values) in zip(pairs, stacked, strict=True):
            np.asarray(mine)[rows, columns] = values
