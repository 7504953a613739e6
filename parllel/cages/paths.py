"""The way from an environment's nested values to the leaves of a buffer."""

from __future__ import annotations

from typing import Any

from parllel.types import Tree


def at_path(tree: Tree, path: tuple[str, ...]) -> Any:
    """Return the part of nested dicts and tuples that a path of field names means.

    Raises:
        KeyError: naming the key that is missing and those that are there.
    """
    for name in path:
        if isinstance(tree, (tuple, list)):
            tree = tree[int(name[1:])]
        else:
            try:
                tree = tree[name]
            except (KeyError, TypeError, IndexError):
                there = sorted(tree) if isinstance(tree, dict) else tree
                raise KeyError(
                    f"no {name!r} in {there}, which the buffer has a field for"
                ) from None
    return tree
