"""Probes of our Ray workers other than speed."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import ray

from benchmarks.harness.machine import cpu_s, descendants, memory_bytes
from benchmarks.peers.workload import Workload
from benchmarks.rollouts.scaling import REPORT_S
from benchmarks.rollouts.sides.parllel_side import ParllelSide, published_weights
from parllel.buffers import buffer_map
from parllel.distributed.rollouts import SampleFragment, WorkerStatus
from parllel.distributed.rollouts.on_ray import RayRollouts
from parllel.errors import WorkerTimeoutError

LIMIT_S = 60.0
LOOK_S = 0.005
BLOCKED_S, SETTLE_S = 2.0, 1.0
MEMORY_S, SAMPLES = 12.0, 12
COST_BATCHES = 60
RATE_S = 4.0


class RayProbeSide(ParllelSide):
    """Our side on Ray; what it is asked for it measures in this process, the trainer's."""

    questions = ("publishing", "blocking", "remembering", "killing", "costs", "rates")

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        super().__init__(workload, settings)
        self._settings, self._version = settings, 1
        self._seen: set[str] = set()  # names of workers that were started before a kill

    # ------------------------------------------------------------------ weights

    def publishing(self, n: int) -> dict[str, list[float]]:
        """Return seconds from a publication until all workers act by it, less those of a worker's batch."""
        weights, found = published_weights(self._workload, self._settings), []
        with self._consumer():
            self._await(self._all_run)
            before, first = self._running(), time.monotonic()
            for _ in range(n):
                self._version += 1
                weights = buffer_map(lambda leaf: leaf + np.float32(1e-6), weights)
                began = time.monotonic()
                self._workers.load_weights(weights, self._version)
                self._await(lambda: all(one.version == self._version for one in self._running()))
                found.append(time.monotonic() - began)
            # Over the same time, as questions and publications make batches longer.
            batch_s = self._batch_s(before, self._running(), time.monotonic() - first)
        return {"weights": [max(0.0, seconds - batch_s) for seconds in found]}

    def _batch_s(
        self, before: list[WorkerStatus], after: list[WorkerStatus], seconds: float
    ) -> float:
        """Return how long the slowest worker took for a batch of its own."""
        batch = float(self._workload.T * self._workload.B // self._settings["n_workers"])
        steps = min(new.steps - old.steps for old, new in zip(before, after, strict=True))
        # At least one, which may have been the only one.
        return seconds * batch / max(batch, steps)

    # ------------------------------------------------------------------ faults

    def killing(self, n: int) -> dict[str, list[float]]:
        """Kill workers by SIGKILL, one after the other; return seconds until that was noticed, and mended.

        It is noticed once the manager says so, and mended once a fragment of the worker in its place is here.
        """
        found: dict[str, list[float]] = {"notice": [], "recovery": []}
        for _ in range(n):
            self._await(self._all_run)
            killed, began = self._kill(), time.monotonic()
            self._await(partial(self._has_died, killed))
            found["notice"].append(time.monotonic() - began)
            number = killed.partition(",")[0]
            while not any(_replaces(one, number, self._seen) for one in self.fetch()):
                if time.monotonic() - began > LIMIT_S:
                    raise WorkerTimeoutError(f"no fragment of a new {number} in {LIMIT_S:g} s")
            found["recovery"].append(time.monotonic() - began)
        return found

    def _kill(self) -> str:
        """Kill the worker that was started first; return its name."""
        first = self._running()[0]
        self._seen = {one.name for one in self._asked()}
        os.kill(_pid(first), signal.SIGKILL)
        return first.name

    # ------------------------------------------------------------------ CPU and memory

    def blocking(self, n: int) -> dict[str, list[float]]:
        """Return the greatest share of a core that a worker uses while all wait for room."""
        self._await(self._all_run)
        time.sleep(SETTLE_S)
        pids, found = [_pid(one) for one in self._running()], []
        for _ in range(n):
            before = [cpu_s(pid) for pid in pids]
            time.sleep(BLOCKED_S)
            used = [cpu_s(pid) - old for pid, old in zip(pids, before, strict=True)]
            found.append(max(used) / BLOCKED_S)
        return {"blocked": found}

    def remembering(self, n: int) -> dict[str, list[float]]:
        """Return the memory of all processes at the end of a run over that in its middle."""
        found = []
        for _ in range(n):
            samples = []
            for _ in range(SAMPLES):
                until = time.monotonic() + MEMORY_S / SAMPLES
                while time.monotonic() < until:
                    self.fetch()
                samples.append(sum(map(memory_bytes, descendants(os.getpid()))))
            third = SAMPLES // 3
            middle, end = samples[third : 2 * third], samples[2 * third :]
            found.append(statistics.median(end) / statistics.median(middle))
        return {"memory": found}

    # ------------------------------------------------------------------ what a simulation needs

    def costs(self, n: int) -> dict[str, float]:
        """Return what the simulation takes: the `Costs` of scaling.py, as medians of `n` runs."""
        # What an actor uses that is never called: threads of Ray.
        idle: Any = ray.remote(_IdleActor).options(num_cpus=0).remote()
        pid = ray.get(idle.pid.remote())
        self._await(self._all_run)
        runs = [self._cost(pid) for _ in range(n)]
        ray.kill(idle)
        return {name: statistics.median(run[name] for run in runs) for name in runs[0]}

    def rates(self, n: int) -> dict[str, list[float]]:
        """Return the steps that arrive in a second, `n` times."""
        self._await(self._all_run)
        self.fetch()
        found = []
        for _ in range(n):
            steps, began = 0, time.monotonic()
            while (seconds := time.monotonic() - began) < RATE_S:
                steps += self.run()
            found.append(steps / seconds)
        return {"steps_per_s": found}

    def _cost(self, idle: int) -> dict[str, float]:
        titles = descendants(os.getpid())
        pids = {
            part: [pid for pid, title in titles.items() if word in title]
            for part, word in PARTS.items()
        }
        pids.update(trainer=[os.getpid()], idle=[idle])
        before = {part: sum(map(cpu_s, of_part)) for part, of_part in pids.items()}
        began, n_fragments, n_bytes = time.monotonic(), 0, 0
        for _ in range(COST_BATCHES):
            found = self.fetch()
            n_fragments, n_bytes = n_fragments + len(found), found[0].nbytes
        seconds = time.monotonic() - began
        used = {part: sum(map(cpu_s, pids[part])) - before[part] for part in pids}
        above = {part: max(0.0, used[part] - used["idle"]) for part in PARTS}
        reports = self._settings["n_workers"] * seconds / REPORT_S
        return {
            "worker_s_per_step": used["worker"] / n_fragments / self._workload.T,
            "buffer_s_per_fragment": above["buffer"] / n_fragments,
            "trainer_s_per_fragment": used["trainer"] / n_fragments,
            "manager_s_per_report": above["manager"] / reports,
            # Reports of workers, and a question of the trainer for each batch.
            "statistics_s_per_call": above["statistics"] / (reports + COST_BATCHES),
            "idle_share": used["idle"] / seconds,
            "fragment_bytes": float(n_bytes),
        }

    # ------------------------------------------------------------------ helpers

    @contextmanager
    def _consumer(self) -> Iterator[None]:
        """Fetch in a thread, so that workers are not blocked."""
        ended = threading.Event()

        def consume() -> None:
            while not ended.is_set():
                self._buffer.fetch(self._workload.B, 0.2)

        thread = threading.Thread(target=consume)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _await(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > deadline:
                raise WorkerTimeoutError(f"what was waited for did not happen in {LIMIT_S:g} s")
            time.sleep(LOOK_S)

    def _asked(self) -> list[WorkerStatus]:
        assert isinstance(self._workers, RayRollouts)
        return self._workers.ask_statuses()

    def _running(self) -> list[WorkerStatus]:
        return [one for one in self._asked() if one.phase == "running"]

    def _all_run(self) -> bool:
        return len(self._running()) == int(self._settings["n_workers"])

    def _has_died(self, name: str) -> bool:
        return any(one.name == name and one.phase == "died" for one in self._asked())


class _IdleActor:
    """Does nothing."""

    def pid(self) -> int:
        """Return the number of its process."""
        return os.getpid()


# Titles that Ray gives to processes of actors.
PARTS = {
    "worker": "ray::RolloutWorkerWrapper",
    "buffer": "ray::BufferActor",
    "manager": "ray::RolloutManager",
    "statistics": "ray::StatisticsActor",
}


def _pid(status: WorkerStatus) -> int:
    return int(status.where.rpartition("pid ")[2])


def _replaces(fragment: SampleFragment, number: str, known: set[str]) -> bool:
    return fragment.producer not in known and fragment.producer.partition(",")[0] == number
