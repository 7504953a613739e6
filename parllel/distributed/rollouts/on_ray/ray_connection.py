"""Notice that the Ray with a run's actors has been shut down, before anything is asked of it."""

from __future__ import annotations

import ray

from parllel.errors import WorkerDiedError


class RayConnection:
    """The connection of a process with Ray, as it was when actors were started.

    To be asked before each call of Ray: without a connection a call starts another Ray, and waits there for
    objects that are gone.
    """

    def __init__(self) -> None:
        self._here = _here()

    @property
    def holds(self) -> bool:
        """Whether the connection is still there."""
        return ray.is_initialized() and _here() == self._here

    def check(self, doing: str) -> None:
        """Raise a WorkerDiedError if it is not.

        doing: who asks, and what for.
        """
        if not self.holds:
            raise WorkerDiedError(
                f"{doing}: the Ray with its actors was shut down, or this process disconnected; leave that "
                "to RaySession.close, or do it after the workers, the statistics and the buffer are closed"
            )


def _here() -> tuple[str, str]:
    # Other nodes have other numbers, and so have other connections with one node.
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()
