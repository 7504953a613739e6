"""The end of a worker that raised an error, in an actor or a process."""

# Made where the worker ran; `RolloutManager._supervise` and `SupervisedWorker` act on it.

from __future__ import annotations

from typing import Literal, NamedTuple

from parllel.errors import RestartsUsedUpError, WorkerError
from parllel.system.processes.exceptions import pack_exception


class WorkerEnd(NamedTuple):
    """The error that ended a worker.

    Attributes:
        kind: "died" if its process ended, or did not answer in time. "unbuilt" if an environment's
            process died or timed out while the worker was built, so another start may help. "parked" if
            all environments have used up their restarts, so another start does not help. "raised" for
            any other error. At the first start of a worker, "raised" ends the run, because the script
            is probably wrong. At a later start, the worker counts as died.
        error: the error, packed by `pack_exception`.
        text: message of the error.
    """

    kind: Literal["died", "unbuilt", "parked", "raised"]
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
