"""Start and finish the steps of several groups of environments together.

    sampler     start_row(t) for every unit, then finish_row() for every unit
    processes   unit 0 |--- step ---|
                unit 1 |--- step -------|     all at the same time

A unit is the smallest part that can be stepped by itself: one group of one cage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from parllel.cages.cage_interface import CageInterface


class Unit(NamedTuple):
    """A group of a cage's environments, and their columns of the batch."""

    cage: CageInterface
    group: int
    columns: slice


class Units:
    """Units with adjacent columns, which are stepped together.

    A step costs two calls per unit, whatever the number of its environments.

    Args:
        units: at least one, in the order of their columns.

    Attributes:
        columns: the columns of all units together.
        start_row: start to step all environments with the actions of row `t`.
        finish_row: wait until what was started is done.
    """

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = list(units)
        self.columns = slice(units[0].columns.start, units[-1].columns.stop)
        # Methods are looked up once, as this runs at every step and its cost adds to each.
        self._starts = [(unit.cage.start_row, unit.group) for unit in units]
        self._finishes = [(unit.cage.finish_row, unit.group) for unit in units]

        self.start_row: Callable[[int], None] = self._start_row
        self.finish_row: Callable[[], None] = self._finish_row
        if len(units) == 1:  # the usual case: call the cage without a loop in between
            self.start_row = partial(units[0].cage.start_row, group=units[0].group)
            self.finish_row = partial(units[0].cage.finish_row, units[0].group)

    def _start_row(self, t: int) -> None:
        for start_row, group in self._starts:
            start_row(t, group)

    def start_rollout(self, T: int) -> None:
        """Start to fill rows 0 to `T` - 1; the cages' policies act."""
        for unit in self.units:
            unit.cage.start_rollout(T, unit.group)

    def start_reset(self, t: int, *, everyone: bool) -> None:
        """Start to reset all environments, or those that have ended, into row `t`."""
        for unit in self.units:
            unit.cage.start_reset(t, everyone=everyone, group=unit.group)

    def _finish_row(self) -> None:
        for finish_row, group in self._finishes:
            finish_row(group)

    def halves(self) -> tuple[Units, Units]:
        """Split between two units, as near to the middle column as possible.

        Raises:
            ValueError: if there is only one unit.
        """
        ends = [unit.columns.stop for unit in self.units[:-1]]
        if not ends:
            raise ValueError(
                f"{self.units[0].cage.spaces.name}: expected environments that can be stepped in two "
                "halves, got one cage with one group; give several cages, or "
                "SynchronizedProcessCage(..., n_groups=2)"
            )
        first, last = self.columns.start, self.columns.stop
        # Doubled distances to the middle, which may lie between two columns.
        distances = [abs(2 * end - first - last) for end in ends]
        at = distances.index(min(distances)) + 1
        return Units(self.units[:at]), Units(self.units[at:])
