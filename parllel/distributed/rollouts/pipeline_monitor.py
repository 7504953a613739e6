"""Time by stage and queue lengths of workers, and the bottleneck that they show."""

# worker's thread   stage, add, see_queue -->  sums  <-- state, stats, table   any other thread
#
# Sums are kept of all time, and of short intervals, of which the last ones are the moving window.

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, perf_counter
from typing import Any

# In the order of the loop: waiting for environments and receiving observations; the policy; sending its
# actions; handing over the fragments, which waits while the queue is full.
STAGES = ("receive", "inference", "send", "hand_over")
_INTERVALS = 12  # of the moving window
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

    Args:
        window_s: length of the moving window in seconds. `table` and `bottleneck` show what was slow lately.
        clock: monotonic clock in seconds.

    Raises:
        ValueError: if `window_s` is not above 0.

    Example:
        >>> monitor = PipelineMonitor()
        >>> monitor.add("receive", 3.0)
        >>> monitor.add("inference", 1.0)
        >>> print(monitor.bottleneck())
        75% of the time goes to the environments; run more of them at once, or in more processes
    """

    def __init__(self, window_s: float = 60.0, clock: Callable[[], float] = monotonic) -> None:
        if not window_s > 0:
            raise ValueError(f"window_s: expected more than 0, got {window_s}")
        self.window_s = window_s
        self._clock = clock
        self._total = _Sums()
        # The start of an interval, and its sums; the newest last.
        self._intervals: deque[tuple[float, _Sums]] = deque()
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
        if stage not in STAGES:
            raise ValueError(f"PipelineMonitor: stage: expected one of {STAGES}, got {stage!r}")
        with self._lock:
            for sums in (self._total, self._newest()):
                sums.seconds[stage] += seconds
                sums.calls[stage] += 1

    def see_queue(self, name: str, length: int, capacity: int) -> None:
        """Record the current length of a queue, for example whenever an item is added."""
        with self._lock:
            for sums in (self._total, self._newest()):
                sums.add_queue(name, 1, length, length, capacity)

    def _newest(self) -> _Sums:
        """Return the sums of the current interval, and drop those that have left the window."""
        now, intervals = self._clock(), self._intervals
        if not intervals or now - intervals[-1][0] >= self.window_s / _INTERVALS:
            intervals.append((now, _Sums()))
            self._forget(now)
        return intervals[-1][1]

    def _forget(self, now: float) -> None:
        while self._intervals and now - self._intervals[0][0] > self.window_s:
            self._intervals.popleft()

    @property
    def stats(self) -> dict[str, float]:
        """Totals: seconds by stage, such as `receive_s`; mean queue lengths, such as `fragments_queue`."""
        # One copy, so that all values are of the same moment.
        state = self.state()
        return {
            **{f"{stage}_s": seconds for stage, seconds in state["seconds"].items()},
            **{f"{name}_queue": row[1] / row[0] for name, row in state["queues"].items()},
        }

    def state(self) -> dict[str, Any]:
        """Return all sums as JSON values, with those of the moving window under `recent`."""
        recent = _Sums()
        with self._lock:
            self._forget(self._clock())
            for _, sums in self._intervals:
                recent.add(sums.as_dict())
            return {**self._total.as_dict(), "recent": recent.as_dict()}

    def merge(self, other: PipelineMonitor | Mapping[str, Any], *, recent: bool = True) -> None:
        """Add the sums of another worker's monitor, or of its `state()`.

        The sums are totals. To poll workers repeatedly, merge their states into a new monitor each
        time.

        recent: whether to add the sums of its moving window too. Those of a worker that has ended would
            stay as they were at its end.
        """
        # Copied first, so two locks are never held at once: two monitors may be merged into each
        # other at the same time, and one into itself.
        state = other.state() if isinstance(other, PipelineMonitor) else other
        with self._lock:
            self._total.add(state)
            if recent:
                self._newest().add(state["recent"])

    def table(self) -> str:
        """Format the figures of all time as a table, with the recent shares and the bottleneck."""
        state = self.state()
        shares, recent = (_shares(part["seconds"]) for part in (state, state["recent"]))
        last = f"last {self.window_s:g} s"
        lines = [f"{'stage':<14}{'seconds':>10}{'share':>8}{last:>11}{'calls':>10}{'ms each':>10}"]
        for stage, seconds in state["seconds"].items():
            calls = state["calls"][stage]
            each = f"{1000 * seconds / calls:.3f}" if calls else "-"
            lines.append(
                f"{stage:<14}{seconds:>10.1f}{shares[stage]:>8.1%}{recent[stage]:>11.1%}"
                f"{calls:>10}{each:>10}"
            )
        if state["queues"]:
            lines.append(f"{'queue':<14}{'mean':>10}{'most':>8}{last:>11}{'capacity':>10}")
        for name, (looks, lengths, most, capacities) in state["queues"].items():
            mean, capacity = lengths / looks, capacities / looks
            seen, lately, *_ = state["recent"]["queues"].get(name, (0, 0))
            newest = f"{lately / seen:.1f}" if seen else "-"
            lines.append(f"{name:<14}{mean:>10.1f}{most:>8}{newest:>11}{capacity:>10.0f}")
        # `bottleneck` reads the sums once more, so its share may be newer than the table's.
        return "\n".join([*lines, self.bottleneck()])

    def bottleneck(self) -> str:
        """Return a sentence that names the bottleneck and a remedy.

        It is that of the moving window; of all time, if nothing was measured in the window.
        """
        state = self.state()
        if any(state["recent"]["calls"].values()):
            state = state["recent"]
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
        shares = _shares(state["seconds"])
        stage = max(STAGES, key=lambda name: shares[name])
        if not shares[stage]:
            return "nothing has been measured yet"
        return f"{shares[stage]:.0%} of the time goes to the {_ADVICE[stage]}"


class _Sums:
    """Seconds and calls by stage, and by queue: looks, sum of lengths, greatest length, sum of capacities."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.calls = dict.fromkeys(STAGES, 0)
        self.queues: dict[str, list[int]] = {}

    def add_queue(self, name: str, looks: int, lengths: int, most: int, capacities: int) -> None:
        seen = self.queues.setdefault(name, [0, 0, 0, 0])
        # Sums rather than means, so that several workers can be merged.
        seen[:] = seen[0] + looks, seen[1] + lengths, max(seen[2], most), seen[3] + capacities

    def add(self, state: Mapping[str, Any]) -> None:
        for stage in STAGES:
            self.seconds[stage] += float(state["seconds"][stage])
            self.calls[stage] += int(state["calls"][stage])
        for name, row in state["queues"].items():
            self.add_queue(name, *row)

    def as_dict(self) -> dict[str, Any]:
        return {
            "seconds": dict(self.seconds),
            "calls": dict(self.calls),
            "queues": {name: list(row) for name, row in self.queues.items()},
        }


def _shares(seconds: Mapping[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    return {stage: value / total if total else 0.0 for stage, value in seconds.items()}
