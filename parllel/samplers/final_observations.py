"""True last observations of episodes: stacked for the agent, and among the next observations of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parllel.buffers import Samples, buffer_leaves, buffer_map
from parllel.cages import FinalObservation
from parllel.types import Tree


def stack_final(final: Sequence[FinalObservation], like: Tree) -> Tree:
    """Return the observations of `final` as one tree of arrays [N, ...] in the dtypes of `like`."""
    parts = [f.observation for f in final]
    return buffer_map(
        lambda array, *values: np.stack(values).astype(array.dtype, copy=False), like, *parts
    )


def places_of(final: Sequence[FinalObservation]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return their rows and columns, [N] each."""
    places = np.array([(f.row, f.column) for f in final], np.intp).reshape(-1, 2)
    return places[:, 0], places[:, 1]


def has_next_observations(samples: Samples) -> bool:
    """Return whether there is a field `env.next_observation` to fill."""
    return getattr(samples.env, "next_observation", None) is not None


def write_next_observations(samples: Samples, final: Sequence[FinalObservation]) -> None:
    """Write to each row of `env.next_observation` what its step led to.

    That is the next row of `env.observation`, but for `final`, in whose places a reset has left another.
    """
    observation, out = samples.env.observation, samples.env.next_observation
    pairs = list(zip(buffer_leaves(out), buffer_leaves(observation), strict=True))
    for (_, mine), (_, seen) in pairs:
        np.copyto(np.asarray(mine), np.asarray(seen[1 : len(seen) + 1]))
    if final:
        rows, columns = places_of(final)
        stacked = buffer_leaves(stack_final(final, observation))
        for ((_, mine), _), (_, values) in zip(pairs, stacked, strict=True):
            np.asarray(mine)[rows, columns] = values
