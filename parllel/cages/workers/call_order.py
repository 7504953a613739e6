"""The order of calls of a cage in this process, which is that of cages with workers.

idle --- begin ---> in progress --- end ---> idle
  |                      |
  +------- closed -------+
"""

from __future__ import annotations

from parllel.cages.argument_checks import check_group
from parllel.errors import ClosedError, WrongStateError


class CallOrder:
    """Refuse calls out of order.

    Attributes:
        in_progress: what was started and not finished, and at which row; None if nothing was.
        closed: whether the cage was closed.
    """

    __slots__ = ("_name", "closed", "in_progress")

    def __init__(self, name: str) -> None:
        self._name = name
        self.closed = False
        self.in_progress: tuple[str, int | None] | None = None

    def check_open(self) -> None:
        """Raise ClosedError after `close`."""
        if self.closed:
            raise ClosedError(f"{self._name}: used after close()")

    def check_idle(self, method: str) -> None:
        """Raise unless a method may be called that nothing may be in progress for."""
        # One condition in the usual case; which error it is matters only if there is one.
        if self.closed or self.in_progress is not None:
            self.check_open()
            assert self.in_progress is not None
            what, t = self.in_progress
            where = "" if t is None else f" at row {t}"
            raise WrongStateError(f"{self._name}: {method}: {what}{where} is not finished")

    def check_started(self, method: str, group: int) -> None:
        """Raise unless the only group has something in progress."""
        if group or self.in_progress is None or self.closed:
            self.check_open()
            check_group(group, 1, self._name)
            raise WrongStateError(f"{self._name}: {method}() without a start")
