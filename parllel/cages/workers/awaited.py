"""What a row that was started waits for."""

from __future__ import annotations

from collections.abc import Sequence

from parllel.system.processes.several import Handle


class Awaited:
    """Something that ends elsewhere; by itself, nothing: it is done."""

    __slots__ = ()

    def done(self) -> bool:
        """Return at once whether it has ended, with an error or without."""
        return True

    def handles(self) -> Sequence[Handle]:
        """Return what is ready when `done` is True, if not earlier, for one wait of `AwaitedRows`.

        Connections and descriptors, as `multiprocessing.connection.wait` takes them. Empty if there are none,
        or it may be done now: then `done` is asked, again and again while it says False.
        """
        return ()


NOTHING = Awaited()
