"""Where the processes of a cage are going to read and write, compared with where they are meant to.

    worker   binds its rows; places_of ----------------> the answer to "bind"
    main     set_samples_buffer: check_places <--------- compared before any row is started

Each process says of every leaf which array it has, and where in its memory the first and the last row of
the first and of the last batch lie, as numpy has them. The main process works out the same from its own
columns: neither the message that binds nor what a worker takes for its share is trusted. This is done once
for all batches of a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from parllel.arrays.array import Array
from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.buffers.tree import buffer_leaves
from parllel.cages.stepping.leaf_rows import Span
from parllel.cages.stepping.rows import Rows
from parllel.errors import RegistrationError
from parllel.types import Tree

# Of each leaf its name, the array, and its spans.
Bound: TypeAlias = list[tuple[str, Array, list[Span]]]


def places_of(rows: Rows) -> Bound:
    """Return of each leaf its name, the array, and where in its memory its rows lie."""
    # Views, as these travel as absolute places. A whole array with several windows would travel as the number
    # of the present one, and receiving it would move the main process to that window.
    return [(leaf.name, leaf.array[:], leaf.spans()) for leaf in rows.leaves]


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
        if tree is not None and field != "env_info_default":  # whose values are copied once
            leaves += [(path, leaf, more) for path, leaf in buffer_leaves(tree, f"env.{field}")]
    for groups, who, of_one in zip(bound, names, shares, strict=True):
        # A process binds nothing for a group in which it has no columns.
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
    # Lists, so that of a leaf that is bound twice both places are checked.
    said: dict[str, list[tuple[Array, list[Span]]]] = {}
    for path, array, spans in places:
        said.setdefault(path, []).append((array, spans))
    for path, leaf, more in leaves:
        expected = _expected_spans(leaf, len(leaf) + more, columns)
        what = f"columns {columns.start} to {columns.stop - 1} of {leaf!r}"
        if path not in said:
            raise RegistrationError(f"{who} is not bound to {path}: expected {what}")
        for array, spans in said[path]:
            if array != leaf[:] or spans != expected:
                raise RegistrationError(
                    f"{who} is bound to another place of {path}: expected {what}, the first and the last row "
                    f"of its first and of its last batch at {expected}, got {spans} of {array!r}"
                )


def _expected_spans(array: Array, n_rows: int, columns: slice) -> list[Span]:
    """Work out what `LeafRows.spans` is to return, without making a view."""
    # Not by LeafRows itself: a mistake there would be compared with itself.
    block = array.block
    n_batches = 1 if array.is_view else block.n_windows
    firsts = [block.padding + number * block.window_rows for number in (0, n_batches - 1)]
    if isinstance(array, LazyFramesArray):
        return [(first + t, columns.start) for first in firsts for t in (0, n_rows - 1)]
    # A view begins where it is; a whole array where its memory does, in which the batches lie.
    body = np.asarray(array)
    begin = body.ctypes.data - block.public().ctypes.data if array.is_view else 0
    firsts = [0, 0] if array.is_view else firsts
    by_row, by_column = body.strides[:2]
    cell = (columns.stop - columns.start, *body.shape[2:]), body.strides[1:]
    return [
        (begin + (first + t) * by_row + columns.start * by_column, *cell)
        for first in firsts
        for t in (0, n_rows - 1)
    ]
