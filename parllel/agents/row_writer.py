"""Writers of agent outputs to rows of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from parllel.agents.row_views import MAX_VIEWS, Convert, RowViews
from parllel.buffers.batches import PerBatch, batch_number, count_batches, max_kept
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.paths import Path, dotted, leaf_paths, part_at
from parllel.buffers.tree import buffer_arrays
from parllel.types import Tree

Write: TypeAlias = Callable[[Any, Any], object]


class RowWriter:
    """Writes trees into the rows of a field, matching leaves by name.

    Fields that are None in the buffer are skipped.

    Args:
        name: the field's path from the root of the samples, for error messages.
        field: a tree with leaves of type Array, or None to write nothing.
        convert: function that converts a numpy view, see `RowViews`.
        write: function that copies a value of the agent's framework into a view.
    """

    def __init__(self, name: str, field: Tree, convert: Convert, write: Write) -> None:
        self._name = name
        self._write = write
        self._leaves: list[tuple[Path, RowViews]] = [
            (path, RowViews(leaf, convert)) for path, leaf in leaf_paths(field)
        ]
        arrays = buffer_arrays(field)
        rows = max((len(array) for array in arrays), default=1)
        most = max_kept(MAX_VIEWS, rows, count_batches(arrays))
        self._by_batch: PerBatch[dict[tuple[Any, Any], ColumnWriter]] = PerBatch(lambda _: {}, most)
        self._writers = self._by_batch.at(batch_number(arrays))

    def use_batch(self, number: int) -> None:
        """Switch to another batch of a field that holds several."""
        for _, views in self._leaves:
            views.use_batch(number)
        self._writers = self._by_batch.at(number)

    def within(self, columns: slice) -> ColumnWriter:
        """Return the writer for `columns`, created on first use.

        Raises:
            ValueError: if the slice has a step.
        """
        key = (columns.start, columns.stop)
        if key not in self._writers:
            leaves = [(path, views.rows(columns)) for path, views in self._leaves]
            where = f"columns {columns.start}:{columns.stop}"
            self._writers[key] = ColumnWriter(self._name, where, leaves, self._write)
        return self._writers[key]

    def write(self, t: int, columns: slice, value: Tree) -> None:
        """Copy `value`, leaves [N, ...], into row `t`; see `ColumnWriter.write`."""
        self.within(columns).write(t, value)


class ColumnWriter:
    """Writes into some columns of the rows of a field.

    Shapes are checked at the first write, because copying would silently broadcast a wrong shape.

    Args:
        name: the field's path.
        where: the columns, for error messages.
        leaves: for each leaf, its path in a value and the views of its rows.
        write: function that copies a value into a view, as for `RowWriter`.

    Attributes:
        write: function that copies a value, leaves [N, ...], into row `t`. Raises ValueError if a leaf is
            missing from it or differs in shape from its field.
    """

    write: Callable[[int, Tree], None]

    def __init__(
        self, name: str, where: str, leaves: list[tuple[Path, list[Any]]], write: Write
    ) -> None:
        self._name, self._where = name, where
        self._leaves = leaves
        self._write = write
        self._checked = False
        # Chosen once, as it runs in every row.
        self.write = self._write_parts
        if not leaves:
            self.write = _write_nothing
        elif len(leaves) == 1 and not leaves[0][0]:
            self._whole = leaves[0][1]
            self.write = self._write_whole
        # The usual fields, an array or a node of arrays, need no walk along paths.
        self._named = [(path[0] if len(path) == 1 else None, path, rows) for path, rows in leaves]

    def _write_whole(self, t: int, value: Tree) -> None:
        """Write a field that is a single array."""
        if not self._checked:
            self._check(t, value)
        self._write(self._whole[t], value)

    def _write_parts(self, t: int, value: Tree) -> None:
        """Write a field with any number of leaves."""
        if not self._checked:
            self._check(t, value)
        write = self._write
        # Once for all leaves, instead of a look-up for each.
        parts = value._asdict() if isinstance(value, NamedTuple) else {}
        for name, path, rows in self._named:
            # `part_at` knows what else a value may be, and what to say of one that lacks the part.
            write(rows[t], parts[name] if name in parts else part_at(value, path))

    def _check(self, t: int, value: Tree) -> None:
        for path, rows in self._leaves:
            name = dotted(path, self._name)
            try:
                leaf = part_at(value, path)
            except KeyError as error:
                raise ValueError(
                    f"{name}: the samples have this field but the agent returned {value!r}"
                ) from error
            expected, got = tuple(rows[t].shape), tuple(getattr(leaf, "shape", ()))
            if expected != got:
                raise ValueError(
                    f"{name}: expected shape {expected} for {self._where}, the agent returned {got}"
                )
        self._checked = True


def _write_nothing(t: int, value: Tree) -> None:
    """Write a field that the buffer does not have."""
