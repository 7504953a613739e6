"""Check of the memory places to which the processes of a cage are bound.

    worker   binds its rows; places_of ----------------> the answer to "bind"
    main     set_samples_buffer: check_places <--------- compared before any row is started

Each process reports, for every leaf, its array and the places in memory of the first and last row of the
first and last batch, as numpy sees them. The main process computes the same from its own columns, and trusts
neither the message that binds nor the worker's idea of its share. This is done once for all batches of a
buffer.
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

# Name, array and spans of each leaf.
Bound: TypeAlias = list[tuple[str, Array, list[Span]]]


def places_of(rows: Rows) -> Bound:
    """Return the name, the array and the memory locations of the rows of each leaf."""
    # Views, which are pickled with absolute places. A whole array with several windows is pickled with the
    # number of the current one, and receiving it would switch the main process to that window.
    return [(leaf.name, leaf.array[:], leaf.spans()) for leaf in rows.leaves]


def check_places(
    bound: Sequence[Sequence[Bound]],
    names: Sequence[str],
    shares: Sequence[Sequence[slice]],
    first_column: int,
    action: Tree,
    fields: dict[str, Tree],
) -> None:
    """Check that all processes of a cage report the right memory locations for each of their groups.

    names: names of the processes, for messages.
    shares: the columns of each process in each group, relative to `first_column`.

    Raises:
        RegistrationError: if a leaf is missing or located elsewhere. The message names process and
            leaf.
    """
    leaves = [(path, leaf, 0) for path, leaf in buffer_leaves(action, "agent.action")]
    for field, tree in fields.items():
        more = int(field == "observation")  # row T, which follows the batch, is written too
        if tree is not None and field != "env_info_default":  # the defaults are copied, not bound
            leaves += [(path, leaf, more) for path, leaf in buffer_leaves(tree, f"env.{field}")]
    # Strict: with an answer missing, the rows of a process would go unchecked.
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
    # Lists, so that both places of a leaf that is bound twice are checked.
    found: dict[str, list[tuple[Array, list[Span]]]] = {}
    for path, array, spans in places:
        found.setdefault(path, []).append((array, spans))
    for path, leaf, more in leaves:
        expected = _expected_spans(leaf, len(leaf) + more, columns)
        what = f"columns {columns.start} to {columns.stop - 1} of {leaf!r}"
        if path not in found:
            raise RegistrationError(f"{who} is not bound to {path}: expected {what}")
        for array, spans in found[path]:
            if array != leaf[:] or spans != expected:
                raise RegistrationError(
                    f"{who} is bound to the wrong place in {path}: expected {what}, with the first "
                    f"and last rows of its first and last batches at {expected}, got {spans} of "
                    f"{array!r}"
                )


def _expected_spans(array: Array, n_rows: int, columns: slice) -> list[Span]:
    """Compute the expected result of `LeafRows.spans` without making a view."""
    # Not with LeafRows: a mistake there would be compared with itself.
    block = array.block
    n_batches = 1 if array.is_view else block.n_windows
    firsts = [block.padding + number * block.window_rows for number in (0, n_batches - 1)]
    if isinstance(array, LazyFramesArray):
        return [(first + t, columns.start) for first in firsts for t in (0, n_rows - 1)]
    # A view begins at its own address, a whole array at the start of its memory, which holds all batches.
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
