"""Writing what an agent returned into a row of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parllel.agents.row_views import Convert, Path, RowViews, dotted, leaf_at, leaf_paths
from parllel.types import Tree


class RowWriter:
    """Write trees into the rows of a field, leaf by leaf and by name.

    Fields that are None in the buffer are skipped on purpose. Shapes are compared at the first
    write to each slice of columns, since copying would broadcast a wrong one without a word.

    Args:
        name: the field's path from the root of the samples, for error messages.
        field: a tree with leaves of type Array, or None, in which case nothing is ever written.
        convert: see `RowViews`.
        write: copies a value of the agent's framework into a view.
    """

    def __init__(
        self, name: str, field: Tree, convert: Convert, write: Callable[[Any, Any], None]
    ) -> None:
        self._name = name
        self._write = write
        self._leaves: list[tuple[Path, RowViews]] = [
            (path, RowViews(leaf, convert)) for path, leaf in leaf_paths(field)
        ]
        self._checked: set[tuple[Any, Any]] = set()

    def write(self, t: int, columns: slice, value: Tree) -> None:
        """Copy `value`, leaves [N, ...], into row `t`.

        Raises:
            ValueError: if a leaf is missing from `value` or has another shape than its field.
        """
        if (columns.start, columns.stop) not in self._checked:
            self._check(t, columns, value)
        for path, views in self._leaves:
            self._write(views.rows(columns)[t], leaf_at(value, path))

    def _check(self, t: int, columns: slice, value: Tree) -> None:
        for path, views in self._leaves:
            name = dotted(self._name, path)
            try:
                leaf = leaf_at(value, path)
            except (AttributeError, KeyError, IndexError, TypeError) as error:
                raise ValueError(
                    f"{name}: the samples have this field but the agent returned {value!r}"
                ) from error
            expected, got = tuple(views.rows(columns)[t].shape), tuple(getattr(leaf, "shape", ()))
            if expected != got:
                raise ValueError(
                    f"{name}: expected shape {expected} for columns {columns.start}:{columns.stop}"
                    f", the agent returned {got}"
                )
        self._checked.add((columns.start, columns.stop))
