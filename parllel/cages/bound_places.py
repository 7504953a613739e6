"""Where the processes of a cage are going to read and write, compared with where they are meant to.

Each process says of every leaf which array it has, and where in that its first and its last row lie, as numpy
has them. The main process works out the same from its own columns: neither the message that binds nor what a
worker takes for its share is trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from parllel.arrays import Array, LazyFramesArray
from parllel.buffers import buffer_leaves
from parllel.cages.rows import Rows
from parllel.errors import RegistrationError
from parllel.types import Tree

# Bytes from the array's first element, shape, bytes from one element to the next; for stacks that are stored
# frame by frame the row of the memory, and the column.
Span: TypeAlias = tuple[Any, ...]
Bound: TypeAlias = list[tuple[str, Array, Span, Span]]


def places_of(rows: Rows) -> Bound:
    """Return of each leaf its name, the array, and where in it the first and the last row lie."""
    # A view travels as its absolute place. Of a whole array that has several windows the number of the
    # present one would, and whoever takes it in changes over to it.
    return [
        (name, array[:], _span_of(array, first), _span_of(array, last))
        for name, array, first, last in rows.bound
    ]


def check_places(
    bound: Sequence[Sequence[Bound]],
    names: Sequence[str],
    shares: Sequence[Sequence[slice]],
    first_column: int,
    action: Tree,
    fields: dict[str, Tree],
) -> None:
    """Check what all processes of a cage say of each of their groups.

    names: what messages call the processes.
    shares: columns of each process in each group, relative to `first_column`.

    Raises:
        RegistrationError: where a leaf is missing, or elsewhere; names process and leaf.
    """
    leaves = [(path, leaf, 0) for path, leaf in buffer_leaves(action, "agent.action")]
    for field, tree in fields.items():
        more = int(field == "observation")  # the row that follows the batch is written, too
        if tree is not None and field != "env_info_default":  # which is copied
            leaves += [(path, leaf, more) for path, leaf in buffer_leaves(tree, f"env.{field}")]
    for groups, who, of_one in zip(bound, names, shares, strict=True):
        expected = [share for share in of_one if share.start < share.stop]
        if len(groups) != len(expected):
            raise RegistrationError(
                f"{who}: expected {len(expected)} groups of columns, got {len(groups)}"
            )
        for share, places in zip(expected, groups, strict=True):
            columns = slice(first_column + share.start, first_column + share.stop)
            _check_leaves(leaves, places, columns, who)


def _check_leaves(
    leaves: Sequence[tuple[str, Array, int]], places: Bound, columns: slice, who: str
) -> None:
    said: dict[str, list[tuple[Array, Span, Span]]] = {}
    for path, *place in places:
        said.setdefault(path, []).append(tuple(place))  # type: ignore[arg-type]
    for path, leaf, more in leaves:
        rows = (0, len(leaf) - 1 + more)
        first, last = (_expected_span(leaf, t, columns) for t in rows)
        what = f"columns {columns.start} to {columns.stop - 1} of {leaf!r}"
        if path not in said:
            raise RegistrationError(f"{who} is not bound to {path}: expected {what}")
        for array, *spans in said[path]:
            if array != leaf[:] or spans != [first, last]:
                raise RegistrationError(
                    f"{who} is bound to another place of {path}: expected {what}, its first and last row at "
                    f"{first} and {last}, got {spans[0]} and {spans[1]} of {array!r}"
                )


def _span_of(array: Array, view: Any) -> Span:
    if isinstance(array, LazyFramesArray):
        place: Span = view.place
        return place
    return view.ctypes.data - np.asarray(array).ctypes.data, view.shape, view.strides


def _expected_span(array: Array, t: int, columns: slice) -> Span:
    """Work out what `_span_of` is to be, without making a view."""
    if isinstance(array, LazyFramesArray):
        return array.block.padding + array.block.window + t, columns.start
    body = np.asarray(array)
    offset = t * body.strides[0] + columns.start * body.strides[1]
    return offset, (columns.stop - columns.start, *body.shape[2:]), body.strides[1:]
