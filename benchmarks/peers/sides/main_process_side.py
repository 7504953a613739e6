"""Cost of the main process: time per vector step, page faults, memory.

To tell its own work from waiting for workers, `finish_row` is held back until they must be done; that pause
is not counted. What is left is the sampler's loop, the handler, the cage's calls, and the end of the batch.
"""

from __future__ import annotations

import gc
import resource
import time
import tracemalloc
from typing import Any

import numpy as np

from benchmarks.peers.sides.parllel_side import ParllelSide
from benchmarks.peers.workload import Workload
from parllel.cages import CageInterface

# Long enough for a worker to wake and step one share: per row, and per environment.
PAUSE_S, PAUSE_PER_ENV_S = 3e-4, 15e-6


class MainProcessSide(ParllelSide):
    """A null agent on a cage whose workers do all stepping.

    Setting `pause`: hold `finish_row` back for as long as that many environments take, for `own_s`.
    """

    questions = ("own_s", "action_copy_s", "page_faults", "traced_growth")

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        settings = dict(settings)
        self._workload = workload
        self._paused_s = 0.0
        self._n_envs = settings.pop("pause", 0)
        super().__init__(workload, settings)

    def build_cage(self, workload: Workload, settings: dict[str, Any]) -> CageInterface:
        """Return the cage, whose workers have ended a row when it is waited for."""
        cage = super().build_cage(workload, settings)
        if self._n_envs:
            self._hold_back(cage, PAUSE_S + PAUSE_PER_ENV_S * self._n_envs)
        return cage

    def _hold_back(self, cage: CageInterface, pause_s: float) -> None:
        finish = cage.finish_row
        clock = time.perf_counter

        def finish_row(group: int = 0) -> None:
            start = clock()
            # Not asleep: after a longer sleep all memory is colder, which is no work of ours.
            while clock() - start < pause_s:
                pass
            self._paused_s += clock() - start
            finish(group)

        cage.finish_row = finish_row  # type: ignore[method-assign]

    def own_s(self, batches: int) -> float:
        """Return seconds of the main process per vector step: the median batch's."""
        spent = []
        for _ in range(batches):
            self._paused_s = 0.0
            start = time.perf_counter()
            self.run()
            spent.append(time.perf_counter() - start - self._paused_s)
        return float(np.median(spent)) / self._workload.T

    def action_copy_s(self) -> float:
        """Return seconds to copy the actions of one vector step by numpy."""
        source = self._workload.actions()
        target = np.empty_like(source)
        rows = list(zip(target, source, strict=True))
        start = time.perf_counter()
        for _ in range(20):
            for to_row, from_row in rows:
                np.copyto(to_row, from_row)
        return (time.perf_counter() - start) / (20 * len(rows))

    def page_faults(self, steps: int) -> float:
        """Return minor page faults of this process per vector step, over `steps` of them."""
        batches = self._batches(steps)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(batches):
            self.run()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        return (after - before) / (batches * self._workload.T)

    def traced_growth(self, steps: int) -> int:
        """Return bytes that Python holds more of after `steps` vector steps than before them."""
        batches = self._batches(steps)
        tracemalloc.start()
        try:
            for _ in range(
                20
            ):  # caches fill; what is kept of the last batch is replaced, not added
                self.run()
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(batches):
                self.run()
            gc.collect()
            return tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()

    def _batches(self, steps: int) -> int:
        return -(-steps // self._workload.T)
