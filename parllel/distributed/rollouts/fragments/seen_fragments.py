"""Remember which fragments have been seen, in memory that does not grow with the run."""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias

from parllel.distributed.rollouts.fragments.sample_fragment import FragmentKey

_Number: TypeAlias = "tuple[float, int]"  # epoch and sequence
_BEFORE: _Number = (0, -1)
_AFTER: _Number = (float("inf"), 0)
# Of one environment. As many fragments of it have to be in a storage that hands them out at random before
# one of them may be forgotten.
_MOST_GAPS = 4096
# Each start of a worker adds its own.
_MOST_ENVIRONMENTS = 2**16


class SeenFragments:
    """Tell fragments that come for the first time from those that a storage hands out again.

    What has not been seen is kept as gaps between numbers of fragments, by environment. Where fragments come
    in order there is one, and another for each time that an environment broke off. Only the environments of
    which fragments came last are remembered.
    """

    def __init__(self) -> None:
        # Open intervals of numbers that have not been seen, in order; the environment of the last fragment is
        # the last.
        self._gaps: dict[tuple[str, int], list[tuple[_Number, _Number]]] = {}

    def add(self, key: FragmentKey) -> bool:
        """Return whether the fragment of this key is new, which it is not from now on."""
        producer, environment, epoch, sequence = key
        gaps = self._gaps.pop((producer, environment), None) or [(_BEFORE, _AFTER)]
        self._gaps[producer, environment] = gaps
        if len(self._gaps) > _MOST_ENVIRONMENTS:
            del self._gaps[next(iter(self._gaps))]
        number = epoch, sequence
        # The last gap that begins before the number.
        at = bisect_right(gaps, (number, (-1, -1))) - 1
        if at < 0 or not gaps[at][0] < number < gaps[at][1]:
            return False
        begin, end = gaps[at]
        parts = [(begin, number), (number, end)]
        gaps[at : at + 1] = [gap for gap in parts if not _is_empty(*gap)]
        # The oldest first: they were dropped by the storage, most likely.
        del gaps[: max(0, len(gaps) - _MOST_GAPS)]
        return True


def _is_empty(begin: _Number, end: _Number) -> bool:
    return begin[0] == end[0] and begin[1] + 1 == end[1]
