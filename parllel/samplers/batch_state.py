"""State of a sampler besides its transforms: unsaved environments, and the edge rows of batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays, buffer_leaves
from parllel.types import State

# The record of an environment whose state was not saved.
NO_STATE: State = {"env": None, "action_space": None}


def count_unsaved(states: Sequence[State]) -> dict[str, int]:
    """Count the environments that saved no state, keyed by the name of the class that cannot."""
    names = [str(one.get("missing")) for one in states if one["env"] is None]
    return {name: names.count(name) for name in sorted(set(names))}


def edges_of(samples: Samples) -> dict[str, list[NDArray[Any]]]:
    """Return the rows that the next batch begins with, for each array, keyed by path."""
    edges = {path: array.edge() for path, array in _by_path(samples).items()}
    return {path: edge for path, edge in edges.items() if edge}


def check_edges(samples: Samples, edges: Mapping[str, Any]) -> None:
    """Check that `edges` belong to these arrays. Raises ValueError."""
    expected = edges_of(samples)
    if set(edges) != set(expected):
        raise ValueError(
            f"samples: expected the rows after a batch of {sorted(expected)}, got those of {sorted(edges)}"
        )


def load_edges(samples: Samples, edges: Mapping[str, Any]) -> None:
    """Write edges returned by `edges_of`. Raises a ValueError that names the path if shapes differ."""
    arrays = _by_path(samples)
    for path, edge in edges.items():
        try:
            arrays[path].load_edge(edge)
        except ValueError as error:
            raise ValueError(f"samples.{path}: {error}") from error


def _by_path(samples: Samples) -> dict[str, Array]:
    """Return the arrays, each by the first path that leads to it."""
    paths: dict[int, str] = {}
    for path, leaf in buffer_leaves(samples):
        if isinstance(leaf, Array):
            paths.setdefault(leaf.block.key, path)
    return {paths[array.block.key]: array for array in buffer_arrays(samples)}
