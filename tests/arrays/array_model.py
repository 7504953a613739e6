"""A second, slow description of what an Array is, to compare the real one with.

Every element of the memory has a number. A view is a numpy array of such numbers, made by numpy's own
indexing of a table of numbers; nothing here computes strides, shifts or offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays import Array

ROWS = "rows"  # the leading dimension is time: negative numbers are not counted from the end
FREE = "free"  # time is gone: numpy's rules
MIXED = "mixed"  # made with lists or masks: tests stay away from negative rows


@dataclass
class Picked:
    """Element numbers of a view, rows around it that can be reached, and the rule of dimension 0."""

    ids: NDArray[np.intp]
    rule: str
    before: NDArray[np.intp]
    after: NDArray[np.intp]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.ids.shape

    def index(self, location: Any) -> Picked:
        items = list(location) if isinstance(location, tuple) else [location]
        rule = MIXED if any(_is_array(item) for item in items) else self.rule
        if self.rule == ROWS:
            table, items = self._with_margin(items)
            if rule == ROWS and isinstance(items[0], int):
                rule = FREE
        else:
            table = self.ids
        ids = np.asarray(table[tuple(items)])
        none = ids[:0] if ids.ndim else ids.reshape(1)[:0]
        return Picked(ids, rule, none, none)

    def _with_margin(self, items: list[Any]) -> tuple[NDArray[np.intp], list[Any]]:
        """Return a table that numpy can index without a negative row, and the index for it."""
        table = np.concatenate([self.before, self.ids, self.after])
        number_of = {row: at for at, row in enumerate(range(-len(self.before), len(table)))}
        length, margin = len(self.ids), len(self.before)
        if not items or (items[0] is Ellipsis and self._consumed(items) < self.ids.ndim):
            items = [slice(None), *items]
        elif items[0] is Ellipsis:
            items = items[1:]
        first = items[0]
        if isinstance(first, slice):
            rows = walk(first, length, margin)
            return table[[number_of[row] for row in rows]], [slice(None), *items[1:]]
        array = np.asarray(first)
        if array.dtype == bool:
            edge = np.zeros((margin, *array.shape[1:]), bool)
            return table, [np.concatenate([edge, array, edge]), *items[1:]]
        if array.ndim == 0:
            return table, [number_of[int(array)], *items[1:]]
        numbers = [number_of[int(row)] for row in array.ravel()]
        return table, [np.array(numbers, int).reshape(array.shape), *items[1:]]

    @staticmethod
    def _consumed(items: list[Any]) -> int:
        masks = [np.ndim(item) for item in items if np.asarray(item).dtype == bool]
        plain = sum(np.asarray(i).dtype != bool for i in items if i is not Ellipsis)
        return plain + sum(masks)


def _is_array(item: Any) -> bool:
    return isinstance(item, (list, np.ndarray))


def walk(rows: slice, length: int, margin: int) -> list[int]:
    """List the rows of a slice by walking: the body by default, the margin where a row of it is named."""
    step = 1 if rows.step is None else rows.step
    exists = range(-margin, length + margin)
    body = range(length)
    if step > 0:
        start = body[0] if rows.start is None and length else rows.start or 0
        stop = length if rows.stop is None or rows.stop > exists.stop else rows.stop
        return [row for row in exists if start <= row < stop and (row - start) % step == 0]
    start = length - 1 if rows.start is None or rows.start >= exists.stop else rows.start
    stop = -1 if rows.stop is None else rows.stop
    return [row for row in reversed(exists) if stop < row <= start and (start - row) % -step == 0]


class ArrayModel:
    """What an Array of this layout holds; `values[id]` is the content of an element."""

    def __init__(self, shape: tuple[int, ...], padding: int, full_size: int) -> None:
        self.shape, self.padding, self.full_size = shape, padding, full_size
        memory_shape = (padding + full_size + padding, *shape[1:])
        self.ids = np.arange(int(np.prod(memory_shape))).reshape(memory_shape)
        self.values = np.zeros(self.ids.size, np.int64)
        self.window = 0

    @property
    def body(self) -> Picked:
        """The rows of the window, with the padding next to them."""
        rows = self.ids[self.window :]
        p, T = self.padding, self.shape[0]
        return Picked(rows[p : p + T], ROWS, rows[:p], rows[p + T : p + T + p])

    def full(self) -> Picked:
        """All rows but the padding."""
        rows = self.ids[self.padding : self.padding + self.full_size]
        return Picked(rows, ROWS, rows[:0], rows[:0])

    def near(self) -> dict[int, NDArray[np.int64]]:
        """Content of every row that can be reached, by row number."""
        body = self.body
        rows = np.concatenate([body.before, body.ids, body.after])
        return {at - self.padding: self.values[row].copy() for at, row in enumerate(rows)}

    def rotate(self) -> None:
        """What was row T + t is row t of the next window, padding included."""
        T, p = self.shape[0], self.padding
        seen = self.near()
        self.window = (self.window + T) % self.full_size
        table = np.concatenate([self.body.before, self.body.ids, self.body.after])
        for t in range(-p, p):
            self.values[table[t + p]] = seen[T + t]

    def read(self, picked: Picked) -> NDArray[np.int64]:
        return self.values[picked.ids]

    def write(self, picked: Picked, value: Any) -> None:
        self.values[picked.ids] = value

    def agree(self, array: Array, picked: Picked) -> None:
        """Fail unless the real array shows what the model says."""
        expected = self.read(picked)
        assert array.shape == expected.shape
        got = np.asarray(array)
        assert got.shape == expected.shape
        np.testing.assert_array_equal(got, expected)


def make_pair(
    cls: type[Array], shape: tuple[int, ...], padding: int, windows: int
) -> tuple[Array, ArrayModel]:
    """Return a real array and its model, every element of which holds a number of its own."""
    full_size = shape[0] * windows
    array = cls(shape, np.int64, padding=padding, full_size=full_size)
    model = ArrayModel(shape, padding, full_size)
    model.values[:] = 1000 + np.arange(model.values.size)
    array.block.memory[...] = model.values[model.ids]
    return array, model
