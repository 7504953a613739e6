"""What a worker says of itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from parllel.distributed.rollouts.pipeline_monitor import PipelineMonitor


@dataclass
class WorkerStatus:
    """What one start of a worker has done so far, as values that travel between processes.

    Attributes:
        name: as in `WorkerPlace`.
        phase: "starting", "running", "ended", "died" or "parked".
        steps: that it has collected.
        version: of the weights that act.
        parked: environments that are not started again, and why.
        env_restarts: how often environments were started again.
        counts: the ledger of its sender: produced = accepted + stale + rejected + lost + queued.
        monitor: `PipelineMonitor.state()`.
        where: the node, and the process.
        reason: why it died or is parked.
        starts: how many starts this is the sum of; one, unless they are long past.
    """

    name: str
    phase: str = "starting"
    steps: int = 0
    version: int = 0
    parked: dict[int, str] = field(default_factory=dict)
    env_restarts: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    monitor: dict[str, Any] | None = None
    where: str = ""
    reason: str = ""
    starts: int = 1

    def plus(self, other: WorkerStatus) -> WorkerStatus:
        """Return the sum of what two starts that are over have done; the reason is that of the other."""
        monitor = PipelineMonitor()
        for state in (self.monitor, other.monitor):
            if state is not None:
                monitor.merge(state)
        return WorkerStatus(
            "earlier starts",
            "died",
            steps=self.steps + other.steps,
            version=max(self.version, other.version),
            env_restarts=self.env_restarts + other.env_restarts,
            counts=dict(Counter(self.counts) + Counter(other.counts)),
            monitor=monitor.state(),
            reason=other.reason,
            starts=self.starts + other.starts,
        )
