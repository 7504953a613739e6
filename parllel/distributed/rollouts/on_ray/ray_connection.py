"""Checks that this process is still connected with the Ray that runs its actors."""

from __future__ import annotations

import ray

from parllel.errors import WorkerDiedError


class RayConnection:
    """The connection of this process with Ray at the time its actors were started.

    Check it before each call of Ray: without a connection, a call would start another Ray, and wait there for
    objects that no longer exist.
    """

    def __init__(self) -> None:
        self._here = _here()

    @property
    def holds(self) -> bool:
        """Whether the connection is still the same."""
        # In this order, because only a connected process has these ids.
        return ray.is_initialized() and _here() == self._here

    def check(self, doing: str) -> None:
        """Raise WorkerDiedError if the connection is lost.

        doing: the caller and its operation, for the error message.
        """
        if not self.holds:
            raise WorkerDiedError(
                f"{doing}: Ray was shut down together with its actors, or this process "
                "disconnected from it; leave both to RaySession.close, or do it after closing the "
                "workers, the statistics and the buffer"
            )


def _here() -> tuple[str, str]:
    # The job id changes with every connection, the node id with the node.
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()
