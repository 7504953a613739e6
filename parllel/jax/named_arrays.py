"""Trees of JAX arrays as numpy arrays by name, for checkpoints and for other processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from parllel.types import Tree


def named_arrays(tree: Tree) -> dict[str, NDArray[Any]]:
    """Return copies of the leaves as numpy arrays by their paths, such as "policy.layers.0.bias"."""
    # Copies: an array of numpy shares the memory of one on the CPU, which the next update reuses.
    return {name: np.array(leaf) for name, leaf in _named_leaves(tree)}


def check_names(tree: Tree, who: str) -> None:
    """Raise ValueError unless all leaves have different names. `who` begins the message."""
    names = [name for name, _ in _named_leaves(tree)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{who}: expected a different path for each array, got {twice} twice")


def tree_of(like: Tree, arrays: Mapping[str, Any], device: jax.Device, who: str, what: str) -> Tree:
    """Return a tree of new JAX arrays in the structure of `like`, with its dtypes.

    Args:
        arrays: returned by `named_arrays`; copied.
        device: of the new arrays.
        who, what: owner and kind of the arrays, for errors.

    Raises:
        ValueError: if names or shapes differ from those of `like`.
    """
    own = dict(_named_leaves(like))
    if own.keys() != arrays.keys():
        raise ValueError(f"{who}: expected the {what} {sorted(own)}, got {sorted(arrays)}")
    # All shapes are checked first, so that nothing is half loaded.
    for name, leaf in own.items():
        expected, got = tuple(leaf.shape), np.shape(arrays[name])
        if expected != got:
            raise ValueError(f"{who}: {name}: expected shape {expected}, got {got}")
    leaves = [
        # `device_put` may share the memory of an array of numpy, so it gets one that nobody else has.
        jax.device_put(np.array(arrays[name], leaf.dtype), device)
        for name, leaf in own.items()
    ]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)


def _named_leaves(tree: Tree) -> list[tuple[str, Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(".".join(map(_name_of, path)), leaf) for path, leaf in leaves]


def _name_of(entry: Any) -> str:
    # A key of a dict, the place in a list, or the name of a field.
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)
