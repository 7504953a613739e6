"""What a worker says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
