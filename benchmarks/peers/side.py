"""Interface of a side, inside its server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from benchmarks.peers.workload import Workload


class Side(ABC):
    """One way to sample a workload, ready after its constructor.

    Attributes:
        libraries: whose versions are reported.
        questions: methods that the driver may ask for, by name; they return JSON values.
    """

    libraries: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()

    @abstractmethod
    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        """Make the environments and everything else that a batch needs."""

    @abstractmethod
    def run(self) -> int:
        """Sample a batch; return the steps of environments in it, without slots that only reset."""

    @abstractmethod
    def first(self) -> dict[str, float]:
        """Sample the first batch and return what `Rows.trace` does."""

    def close(self) -> None:
        """End processes, close environments."""
