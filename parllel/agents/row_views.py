"""Views of the rows of a field, in the framework of the agent, made once and then only looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.arrays import LazyFramesArray
from parllel.buffers import buffer_leaves, named_map
from parllel.types import Tree

Convert: TypeAlias = Callable[[NDArray[Any]], Any]


class RowViews:
    """Hold a view of every row of a field, for each slice of columns that is asked for.

    The first call with a slice makes its views, `T` of them and one per row of end padding; later
    calls look them up by `(start, stop)`. Views share memory with the field: whatever is written
    to the one is seen in the other. When the memory behind the field changes, make a new object.
    All rows of a `LazyFramesArray` are one and the same view: of the stacks that were written last.

    Args:
        field: a tree with leaves of type Array, `[T, B, ...]`.
        convert: turns the numpy view of a row of one leaf into a view of another framework.
    """

    def __init__(self, field: Tree, convert: Convert) -> None:
        self._field = field
        self._convert = convert
        self._rows: dict[tuple[Any, Any], list[Tree]] = {}
        # A tree can be read no further than its shortest leaf.
        self._n_rows = min(leaf.last + 1 + leaf.padding for _, leaf in buffer_leaves(field))

    def rows(self, columns: slice) -> list[Tree]:
        """Return the views of `columns`, of all rows; entry T is the first row of end padding.

        Raises:
            ValueError: if the slice has a step.
        """
        rows = self._rows.get((columns.start, columns.stop))
        if rows is None:
            if columns.step not in (None, 1):
                raise ValueError(f"columns: expected a slice without a step, got {columns}")
            rows = [self._view(t, columns) for t in range(self._n_rows)]
            self._rows[columns.start, columns.stop] = rows
        return rows

    def _view(self, t: int, columns: slice) -> Tree:
        return named_map(lambda leaf: self._convert(_row(leaf, t, columns)), self._field)


def _row(leaf: Any, t: int, columns: slice) -> NDArray[Any]:
    # Stacks that are stored frame by frame have no memory of their own, but for those written last.
    if isinstance(leaf, LazyFramesArray):
        return leaf.staged(columns)
    return np.asarray(leaf[t, columns])
