"""What a sampler starts and finishes apart: one group of one cage, and rows of such units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from parllel.cages import CageInterface


class Unit(NamedTuple):
    """A group of a cage's environments, and their columns of the batch."""

    cage: CageInterface
    group: int
    columns: slice


class Units:
    """Units whose columns lie side by side: all are started, then all are finished.

    A step costs two calls per unit, however many environments that is.

    Args:
        units: at least one, in the order of their columns.

    Attributes:
        columns: of all of them together.
    """

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = list(units)
        self.columns = slice(units[0].columns.start, units[-1].columns.stop)
        # Looked up once: they are called at every step.
        self._starts = [(unit.cage.start_row, unit.group) for unit in units]
        self._finishes = [(unit.cage.finish_row, unit.group) for unit in units]

        # Begin to step all environments with the actions of row `t`; wait for what was started.
        self.start_row: Callable[[int], None] = self._start_row
        self.finish_row: Callable[[], None] = self._finish_row
        if len(units) == 1:  # no need to go through a list of one
            self.start_row = partial(units[0].cage.start_row, group=units[0].group)
            self.finish_row = partial(units[0].cage.finish_row, units[0].group)

    def _start_row(self, t: int) -> None:
        for start_row, group in self._starts:
            start_row(t, group)

    def start_rollout(self, T: int) -> None:
        """Begin to fill rows 0 to `T` - 1; policies where the environments are act."""
        for unit in self.units:
            unit.cage.start_rollout(T, unit.group)

    def start_reset(self, t: int, *, everyone: bool) -> None:
        """Begin to reset into row `t`: all environments, or those that need it."""
        for unit in self.units:
            unit.cage.start_reset(t, everyone=everyone, group=unit.group)

    def _finish_row(self) -> None:
        for finish_row, group in self._finishes:
            finish_row(group)

    def halves(self) -> tuple[Units, Units]:
        """Split where one unit ends and the next begins, as near to the middle column as there is.

        Raises:
            ValueError: if there is one unit only.
        """
        ends = [unit.columns.stop for unit in self.units[:-1]]
        if not ends:
            raise ValueError(
                f"{self.units[0].cage.spaces.name}: expected environments that can be stepped in two "
                "halves, got one cage with one group; give several cages, or "
                "SynchronizedProcessCage(..., n_groups=2)"
            )
        first, last = self.columns.start, self.columns.stop
        distances = [abs(2 * end - first - last) for end in ends]
        at = distances.index(min(distances)) + 1
        return Units(self.units[:at]), Units(self.units[at:])
