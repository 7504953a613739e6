"""How a worker on Ray came to its end, if it was not killed."""

from __future__ import annotations

from typing import Literal, NamedTuple

from parllel.errors import RestartsUsedUpError, WorkerError
from parllel.system.processes.exceptions import pack_exception


class WorkerEnd(NamedTuple):
    """What a worker raised.

    Attributes:
        kind: "unbuilt" if the process of an environment died or took too long while the worker was built, so
            that another start may help; "parked" if all environments have used up their restarts, so that
            none will; "raised" for anything else. The first start of a worker ends the run by it, as it is
            taken for a mistake in the script; a later start counts as one that died.
        error: as `pack_exception` packs it.
        text: the error in words.
    """

    kind: Literal["unbuilt", "parked", "raised"]
    error: bytes
    text: str

    @classmethod
    def of(cls, error: BaseException, *, built: bool) -> WorkerEnd:
        """Return the end by an error, which came before or after the worker was built."""
        kind: Literal["unbuilt", "parked", "raised"] = "raised"
        if isinstance(error, RestartsUsedUpError):
            kind = "parked"
        elif isinstance(error, WorkerError) and not built:
            kind = "unbuilt"
        return cls(kind, pack_exception(error), str(error))
