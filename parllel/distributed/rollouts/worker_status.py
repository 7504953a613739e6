"""The status of a worker, and summaries over workers: numbers for the log, lines for the terminal."""

# RolloutWorker.status          writes most of it, where the worker runs
# RolloutWorkerWrapper.status   adds `where`
# RolloutManager                sets `phase` and `reason` at the end of a start, settles `counts`
# Rollouts.stats, overview      read it, in the trainer

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from parllel.distributed.rollouts.pipeline_monitor import PipelineMonitor

# Maximum number and length of lines about workers and environments that ended: terminals are small.
_MAX_ENDS, _MAX_CHARACTERS = 3, 160
# Counters of the senders' ledger: produced = accepted + stale + rejected + lost + queued.
_COUNTS = ("produced", "accepted", "stale", "rejected", "lost", "queued")


@dataclass
class WorkerStatus:
    """Progress of one start of a worker. Picklable.

    Attributes:
        name: name of the worker, as in `WorkerContext`.
        phase: "starting", "running", "ended", "died" or "parked".
        steps: number of steps collected.
        version: version of the weights in use.
        parked: environments that are no longer restarted, with the reasons.
        env_restarts: number of restarts of environments.
        counts: ledger of the worker's sender: produced = accepted + stale + rejected + lost +
            queued.
        monitor: `PipelineMonitor.state()`.
        where: node and process of the worker.
        reason: reason why the worker died or is parked.
        starts: number of starts summed up in this object. It exceeds 1 only for old starts.
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
        """Return the sum of two ended starts, with the reason of `other`."""
        monitor = PipelineMonitor()
        for state in (self.monitor, other.monitor):
            if state is not None:
                monitor.merge(state, recent=False)
        # Without `parked`: a start that is over has no environments any more. Counter's `+` drops
        # counters of 0, which `_counts` reads as 0 again.
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


def stats_of(statuses: Sequence[WorkerStatus]) -> dict[str, float]:
    """Return sums over workers for the log, in the format of a sampler's `stats`.

    `workers/running`, `workers/parked`; `workers/restarts` and `workers/env_restarts`, the restarts of
    workers and environments; `workers/steps`; `workers/oldest_version`, the lowest that is running;
    `fragments/...`, the sum of the ledgers; and the seconds and queues of `PipelineMonitor.stats`.
    """
    # Only running ones, or the version of a dead worker would stay the oldest for good.
    running = [status for status in statuses if status.phase == "running"]
    counts = _counts(statuses)
    return {
        "workers/running": len(running),
        "workers/parked": _parked(statuses),
        "workers/restarts": _restarts(statuses),
        "workers/env_restarts": sum(status.env_restarts for status in statuses),
        "workers/steps": sum(status.steps for status in statuses),
        "workers/oldest_version": min((status.version for status in running), default=0),
        **{f"fragments/{name}": counts[name] for name in _COUNTS},
        **_merged(statuses).stats,
    }


def overview_of(statuses: Sequence[WorkerStatus]) -> str:
    """Return a summary of workers, fragments, stages and queues. Its last line names the bottleneck.

    Up to three lines give the reasons of the workers that died or were parked last.
    """
    phases: Counter[str] = Counter()
    for status in statuses:
        phases[status.phase] += status.starts
    numbers = ", ".join(f"{n} {phase}" for phase, n in sorted(phases.items()))
    versions = [status.version for status in statuses if status.phase == "running"]
    span = f"versions {min(versions)} to {max(versions)}" if versions else "no version yet"
    env_restarts = sum(status.env_restarts for status in statuses)
    counts = _counts(statuses)
    fragments = " + ".join(f"{counts[name]:,} {name}" for name in _COUNTS[1:])
    return "\n".join(
        [
            f"workers: {numbers}; {span}; {_restarts(statuses)} restarts, {env_restarts} of environments",
            f"fragments: {counts['produced']:,} produced = {fragments}",
            # Statuses are in the order of the starts, so these are of the latest ones.
            *_ends(statuses)[-_MAX_ENDS:],
            _merged(statuses).table(),
        ]
    )


def _ends(statuses: Sequence[WorkerStatus]) -> list[str]:
    """Return a line for each worker that died or is parked, and for each parked environment."""
    lines = []
    for status in statuses:
        if status.phase in ("died", "parked"):
            lines.append(f"{status.name} {status.phase}: {_last_line(status.reason)}")
            continue
        for number, reason in status.parked.items():
            lines.append(f"{status.name}: environment {number} is parked: {_last_line(reason)}")
    return lines


def _last_line(reason: str) -> str:
    # If restarts are used up, the last line has the reason of the last one.
    line = reason.strip().rpartition("\n")[2].strip()
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}..."


def _counts(statuses: Sequence[WorkerStatus]) -> Counter[str]:
    # A worker that has no sender, or has not reported yet, has no counters, and adds nothing.
    counts: Counter[str] = Counter()
    for status in statuses:
        counts.update(status.counts)
    return counts


def _merged(statuses: Sequence[WorkerStatus]) -> PipelineMonitor:
    # A new one for each call, because the states of the workers are totals.
    monitor = PipelineMonitor()
    for status in statuses:
        if status.monitor is not None:
            monitor.merge(status.monitor, recent=status.phase == "running")
    return monitor


def _parked(statuses: Sequence[WorkerStatus]) -> int:
    """Count parked workers, and parked environments of other workers."""
    return sum(len(status.parked) + (status.phase == "parked") for status in statuses)


def _restarts(statuses: Sequence[WorkerStatus]) -> int:
    # Each start has its own status, and "died" means that another start follows.
    return sum(status.starts for status in statuses if status.phase == "died")
