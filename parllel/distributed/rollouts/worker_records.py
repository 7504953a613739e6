"""The statuses of all starts of a run's workers, where workers are supervised."""

# RolloutManager, its event loop                  one thread
# SupervisedWorker, a thread for each worker  -->  WorkerRecords  <--  ProcessRollouts.statuses, the trainer

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from parllel.distributed.rollouts.worker_status import WorkerStatus

# Number of ended starts kept separately; older ones are summed up, as a run of weeks may have thousands.
MAX_ENDS = 300
_ALIVE = ("starting", "running")


class WorkerRecords:
    """Records the status of each start of a worker, and balances its ledger after its end. Thread-safe."""

    def __init__(self) -> None:
        # By name, in the order of their starts.
        self._statuses: dict[str, WorkerStatus] = {}
        self._earlier: WorkerStatus | None = None  # the sum of the oldest ends
        self._lock = threading.Lock()

    def begin(self, name: str) -> None:
        """Record a start."""
        with self._lock:
            self._statuses[name] = WorkerStatus(name)

    def note(self, status: WorkerStatus, *, final: bool = False) -> list[str]:
        """Record a status. Returns the reasons of environments that are parked since the last.

        final: whether it was made after the worker's end.
        """
        with self._lock:
            # A report that was in transit when its worker died must not overwrite the record of its end. The
            # final status may: a failed worker has reported "ended" while it was still closing.
            before = self._statuses.get(status.name)
            if not final and before is not None and before.phase not in _ALIVE:
                return []
            self._statuses[status.name] = status
            known = {} if before is None else before.parked
            return [reason for number, reason in status.parked.items() if number not in known]

    def note_counts(self, name: str, counts: Mapping[str, int]) -> None:
        """Record the counters of a worker's sender, which may be newer than its status."""
        with self._lock:
            self._statuses[name] = replace(self._statuses[name], counts=dict(counts))

    def end(self, name: str, phase: str, reason: str) -> None:
        """Record the end of a start."""
        with self._lock:
            # Always there: only starts that died are summed up, and each ends once.
            self._statuses[name] = replace(self._statuses[name], phase=phase, reason=reason)

    def end_all(self, reason: str) -> None:
        """Record the death of all that have not ended."""
        for name, status in list(self._statuses.items()):
            if status.phase in _ALIVE:
                self.end(name, "died", reason)

    def count(self, phase: str) -> int:
        """Return the number of starts in a phase."""
        with self._lock:
            return sum(status.phase == phase for status in self._statuses.values())

    def statuses(self, handled: Mapping[str, int]) -> list[WorkerStatus]:
        """Return the status of each start, with the oldest ends as one sum.

        handled: number of fragments that the buffer has handled, by the name of the start. Of ended starts,
            all others that were produced are lost.
        """
        with self._lock:
            settled = [
                _settled(status, handled.get(name, 0)) for name, status in self._statuses.items()
            ]
            earlier = [] if self._earlier is None else [self._earlier]
            # Their last fragments have arrived or are lost by now, so the sum is final.
            for old in [status for status in settled if status.phase == "died"][:-MAX_ENDS]:
                del self._statuses[old.name]
                self._earlier = old if self._earlier is None else self._earlier.plus(old)
        return [*earlier, *settled]


def _settled(status: WorkerStatus, handled: int) -> WorkerStatus:
    """Balance the ledger in the status of an ended worker.

    Its last report may be older than its last fragments. The buffer knows how many arrived; others that were
    reported as produced are lost.
    """
    if status.phase in _ALIVE or not (status.counts or handled):
        return status
    counts = {**dict.fromkeys(("produced", "stale", "rejected", "lost"), 0), **status.counts}
    elsewhere = counts["stale"] + counts["rejected"] + counts["lost"]
    produced = max(counts["produced"], handled + elsewhere)
    lost = counts["lost"] + produced - handled - elsewhere
    return replace(
        status,
        counts={**counts, "produced": produced, "accepted": handled, "lost": lost, "queued": 0},
    )
