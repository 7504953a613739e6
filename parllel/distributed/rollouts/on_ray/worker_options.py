"""Resources and restarts of each worker on Ray."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerOptions:
    """Resources and restarts of each worker.

    Attributes:
        cpus, gpus: resources that Ray reserves; fractions are allowed.
        restarts, within_s: maximum number of restarts of a worker within this many seconds.
        start_timeout_s: time limit in seconds for placing and starting the worker's actor.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    restarts: int = 10
    within_s: float = 600.0
    start_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        # Checked in the trainer's process: the error of an actor would come late, and packed.
        for name, value in (("cpus", self.cpus), ("gpus", self.gpus)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"WorkerOptions: {name}: expected 0 or more, got {value}")
        if self.restarts < 0:
            raise ValueError(f"WorkerOptions: restarts: expected 0 or more, got {self.restarts}")
        for name, value in (("within_s", self.within_s), ("start_timeout_s", self.start_timeout_s)):
            # Not `value <= 0`, which lets NaN pass.
            if not value > 0:
                raise ValueError(f"WorkerOptions: {name}: expected more than 0, got {value}")
