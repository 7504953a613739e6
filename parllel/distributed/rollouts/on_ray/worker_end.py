"""The end of a worker on Ray that raised an error."""

# Made by the wrapper in the worker's actor; `RolloutManager._supervise` acts on it.

from __future__ import annotations

from typing import Literal, NamedTuple

from parllel.errors import RestartsUsedUpError, WorkerError
from parllel.system.processes.exceptions import pack_exception


class WorkerEnd(NamedTuple):
    """The error that ended a worker.

    Attributes:
        kind: "unbuilt" if an environment's process died or timed out while the worker was built, so
            another start may help. "parked" if all environments have used up their restarts, so
            another start does not help. "raised" for any other error. At the first start of a
            worker, "raised" ends the run, because the script is probably wrong. At a later start,
            the worker counts as died.
        error: the error, packed by `pack_exception`.
        text: message of the error.
    """

    kind: Literal["unbuilt", "parked", "raised"]
    error: bytes
    text: str

    @classmethod
    def of(cls, error: BaseException, *, built: bool) -> WorkerEnd:
        """Classify an error that was raised before or after the worker was built."""
        kind: Literal["unbuilt", "parked", "raised"] = "raised"
        # First, because it is a WorkerError as well.
        if isinstance(error, RestartsUsedUpError):
            kind = "parked"
        elif isinstance(error, WorkerError) and not built:
            kind = "unbuilt"
        return cls(kind, pack_exception(error), str(error))
