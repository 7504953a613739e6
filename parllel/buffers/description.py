"""What was allocated, in words and numbers that fit into JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from parllel.arrays.array import Array
from parllel.buffers.tree import buffer_leaves
from parllel.types import Tree


def describe_arrays(tree: Tree) -> dict[str, dict[str, Any]]:
    """Describe each leaf of a tree by JSON values, keyed by path.

    Each description has `class`, `shape`, `dtype`, `padding`, `storage` and `megabytes` (millions
    of bytes, for all rows, including padding and further batches). A leaf that shows the same
    memory as an earlier leaf names that leaf in `same_as`.

    Raises:
        ClosedError: if the tree was closed.
    """
    first_paths: dict[int, str] = {}
    described = {}
    for path, leaf in buffer_leaves(tree):
        if isinstance(leaf, Array):
            entry = _entry(leaf, leaf.padding, leaf.storage, leaf.block.nbytes)
            first = first_paths.setdefault(leaf.block.key, path)
            if first != path:
                entry["same_as"] = first
        else:
            array = np.asarray(leaf)
            entry = _entry(array, 0, "local", array.nbytes)
        described[path] = entry
    return described


def _entry(array: Any, padding: int, storage: str, nbytes: int) -> dict[str, Any]:
    return {
        "class": type(array).__name__,
        "shape": [int(n) for n in array.shape],
        "dtype": str(array.dtype),
        "padding": padding,
        "storage": storage,
        "megabytes": nbytes / 1e6,
    }


def summarize_arrays(described: Mapping[str, Mapping[str, Any]]) -> str:
    """Summarize the result of `describe_arrays` in one line for the log. Shared memory counts once.

    Example:
        >>> entry = {"class": "Array", "storage": "local", "megabytes": 1.5}
        >>> summarize_arrays({"a": entry, "b": {**entry, "same_as": "a"}})
        'buffers: 1.5 MB in 1 array (local 1.5 MB)'
    """
    own = [entry for entry in described.values() if "same_as" not in entry]
    totals: dict[str, float] = {}
    for entry in own:
        totals[entry["storage"]] = totals.get(entry["storage"], 0.0) + entry["megabytes"]
    parts = ", ".join(f"{storage} {total:.3g} MB" for storage, total in totals.items())
    arrays = "array" if len(own) == 1 else "arrays"
    return f"buffers: {sum(totals.values()):.3g} MB in {len(own)} {arrays} ({parts or 'none'})"
