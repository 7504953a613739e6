"""Time by stage and queue lengths of workers, and the bottleneck that they show."""

# worker's thread   stage, add, see_queue -->  sums  <-- state, stats, table   any other thread

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

# In the order of the loop: waiting for environments and receiving observations; the policy; sending its
# actions; handing over the fragments, which waits while the queue is full.
STAGES = ("receive", "inference", "send", "hand_over")
# Average fill level from which a queue slows its producers down.
_FULL = 0.8
_ADVICE = {
    "receive": "environments; run more of them at once, or in more processes",
    "inference": "policy; a larger batch_size, a smaller model or a faster device would help",
    "send": "sending of actions to environments; larger batches of environments in one cage would help",
    "hand_over": "consumer of the fragments; let it take more at a time, or use fewer workers",
}


class PipelineMonitor:
    """Measures the seconds per stage and the queue lengths of one worker, or of all when merged.

    The stages follow each other in one thread of a worker: `receive`, `inference`, `send`, `hand_over`.
    Thread-safe.

    Example:
        >>> monitor = PipelineMonitor()
        >>> monitor.add("receive", 3.0)
        >>> monitor.add("inference", 1.0)
        >>> print(monitor.bottleneck())
        75% of the time goes to the environments; run more of them at once, or in more processes
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._calls = dict.fromkeys(STAGES, 0)
        # By name: number of observations, sum of lengths, greatest length, sum of capacities.
        self._queues: dict[str, list[int]] = {}
        # Held for a few additions only: the worker takes it several times in each turn.
        self._lock = threading.Lock()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the time of a `with` block for a stage, even if it raises."""
        began = perf_counter()
        try:
            yield
        finally:
            self.add(name, perf_counter() - began)

    def add(self, stage: str, seconds: float) -> None:
        """Add seconds to a stage.

        Raises:
            ValueError: for an unknown stage.
        """
        # Without the lock, because the names of the stages never change.
        if stage not in self._seconds:
            raise ValueError(f"PipelineMonitor: stage: expected one of {STAGES}, got {stage!r}")
        with self._lock:
            self._seconds[stage] += seconds
            self._calls[stage] += 1

    def see_queue(self, name: str, length: int, capacity: int) -> None:
        """Record the current length of a queue, for example whenever an item is added."""
        with self._lock:
            seen = self._queues.setdefault(name, [0, 0, 0, 0])
            # Sums rather than means, so that several workers can be merged.
            seen[:] = seen[0] + 1, seen[1] + length, max(seen[2], length), seen[3] + capacity

    @property
    def stats(self) -> dict[str, float]:
        """Seconds by stage, such as `receive_s`, and mean queue lengths, such as `fragments_queue`."""
        # One copy, so that all values are of the same moment.
        state = self.state()
        return {
            **{f"{stage}_s": seconds for stage, seconds in state["seconds"].items()},
            **{f"{name}_queue": row[1] / row[0] for name, row in state["queues"].items()},
        }

    def state(self) -> dict[str, Any]:
        """Return all sums as JSON values."""
        with self._lock:
            return {
                "seconds": dict(self._seconds),
                "calls": dict(self._calls),
                "queues": {name: list(row) for name, row in self._queues.items()},
            }

    def merge(self, other: PipelineMonitor | Mapping[str, Any]) -> None:
        """Add the sums of another worker's monitor, or of its `state()`.

        The sums are totals. To poll workers repeatedly, merge their states into a new monitor each
        time.
        """
        # Copied first, so two locks are never held at once: two monitors may be merged into each
        # other at the same time, and one into itself.
        state = other.state() if isinstance(other, PipelineMonitor) else other
        with self._lock:
            for stage in STAGES:
                self._seconds[stage] += float(state["seconds"][stage])
                self._calls[stage] += int(state["calls"][stage])
            for name, (looks, lengths, most, capacities) in state["queues"].items():
                seen = self._queues.setdefault(name, [0, 0, 0, 0])
                seen[:] = (
                    seen[0] + looks,
                    seen[1] + lengths,
                    max(seen[2], most),
                    seen[3] + capacities,
                )

    def table(self) -> str:
        """Format all figures as a table, with the bottleneck in the last line."""
        state = self.state()
        total = sum(state["seconds"].values())
        lines = [f"{'stage':<14}{'seconds':>10}{'share':>8}{'calls':>10}{'ms each':>10}"]
        for stage, seconds in state["seconds"].items():
            share, calls = seconds / total if total else 0.0, state["calls"][stage]
            each = f"{1000 * seconds / calls:.3f}" if calls else "-"
            lines.append(f"{stage:<14}{seconds:>10.1f}{share:>8.1%}{calls:>10}{each:>10}")
        if state["queues"]:
            lines.append(f"{'queue':<14}{'mean':>10}{'most':>8}{'capacity':>10}")
        for name, (looks, lengths, most, capacities) in state["queues"].items():
            mean, capacity = lengths / looks, capacities / looks
            lines.append(f"{name:<14}{mean:>10.1f}{most:>8}{capacity:>10.0f}")
        # `bottleneck` reads the sums once more, so its share may be newer than the table's.
        return "\n".join([*lines, self.bottleneck()])

    def bottleneck(self) -> str:
        """Return a sentence that names the bottleneck and a remedy."""
        state = self.state()
        # Checked before the stages, because a full queue makes workers wait in any of them.
        full = {name: row[1] / row[3] for name, row in state["queues"].items() if row[3]}
        fullest = max(full, key=lambda name: full[name], default="")
        if full and full[fullest] >= _FULL:
            # A turn adds all its fragments at once, which may exceed the capacity.
            share = min(full[fullest], 1.0)
            return (
                f"the queue of {fullest} is {share:.0%} full on average, so workers wait for the "
                f"{_ADVICE['hand_over']}"
            )
        total = sum(state["seconds"].values())
        if not total:
            return "nothing has been measured yet"
        stage = max(STAGES, key=lambda name: state["seconds"][name])
        return f"{state['seconds'][stage] / total:.0%} of the time goes to the {_ADVICE[stage]}"
