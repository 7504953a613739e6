"""Hundreds of killed environments of a rollout worker: each is noticed, nothing is lost and nothing grows.

PARLLEL_SOAK_TRIALS (200) says how many are killed.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np
import psutil
import pytest
from private_memory import private_memory

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.distributed.rollouts import (
    AsynchronousSchedule,
    EnvWorker,
    FragmentSender,
    ReplayBuffer,
    RolloutWorker,
    StepRecord,
)
from parllel.system.processes import RestartBudget
from parllel.testing import CountingEnv
from parllel.testing.dummy_agents import CountingAgent
from parllel_patterns import allocate_samples

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

TRIALS = int(os.environ.get("PARLLEL_SOAK_TRIALS", 200))
N, LENGTH = 4, 5
NOTICED_S = 2.0
MAY_GROW = 4 * 2**20  # bytes


class SlowEnv(CountingEnv):
    """Takes up to 4 ms for a step."""

    def step(self, action: Any) -> Any:
        time.sleep(random.random() * 0.004)
        return super().step(action)


class WatchedWorker(EnvWorker):
    """Says when the death of each process was noticed."""

    noticed: dict[int, float]

    def fail(self, error: Exception) -> float | None:
        self.noticed[self.cage.pid] = time.monotonic()
        return super().fail(error)


class Killer(threading.Thread):
    """Kills one process after the other, at random moments, each once it has made steps."""

    def __init__(self, workers: list[EnvWorker], stop: Any) -> None:
        super().__init__()
        self.workers, self.stop = workers, stop
        self.killed: dict[int, tuple[float, int]] = {}
        self.steps = [0] * N
        self.holdings: list[tuple[int, int]] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for trial in range(TRIALS):
                worker = random.choice(self.workers)
                seen, deadline = self.steps[worker.index], time.monotonic() + 60
                while self.steps[worker.index] < seen + 3:
                    assert time.monotonic() < deadline, "no steps after a restart"
                    time.sleep(0.001)
                time.sleep(random.random() * 0.02)
                self.killed[worker.cage.pid] = time.monotonic(), worker.index
                os.kill(worker.cage.pid, signal.SIGKILL)
                if trial in (TRIALS // 5, TRIALS - 1):
                    time.sleep(5)  # until all processes are there again
                    self.holdings.append((private_memory(), psutil.Process().num_fds()))
        except BaseException as error:
            self.error = error
        finally:
            self.stop()


def test_killed_environments() -> None:
    workers: list[EnvWorker] = []
    noticed: dict[int, float] = {}
    for i in range(N):
        budget = RestartBudget(10 * TRIALS, 3600.0, 0.01, 0.05)
        worker = WatchedWorker(SlowEnv, seed=i, index=i, budget=budget, timeout_s=30)
        worker.noticed = noticed
        workers.append(worker)
    cages = [worker.cage for worker in workers]
    handler = NumpyHandler(CountingAgent(4))
    samples = allocate_samples(cages, BatchSpec(2, N), handler)
    schedule = AsynchronousSchedule(workers, handler, samples, batch_size=2, max_wait_s=0.005)
    last = [0.0] * N
    gaps: list[tuple[float, int, float]] = []

    def see(step: StepRecord) -> None:
        now = time.monotonic()
        killer.steps[step.environment] += 1
        # The long ones alone, as what is kept of each step would be found as memory that grows.
        if last[step.environment] and now - last[step.environment] > NOTICED_S:
            gaps.append((now, step.environment, now - last[step.environment]))
        last[step.environment] = now

    drained = threading.Event()
    with ReplayBuffer(64) as buffer, FragmentSender(buffer) as sender:
        rollouts = RolloutWorker(
            schedule, fragment_length=LENGTH, seed=1, sender=sender, progress_handler=see
        )
        killer = Killer(workers, rollouts.stop)
        breaks: set[tuple[int, int]] = set()
        wrong: list[str] = []

        def drain() -> None:
            while not drained.is_set():
                for fragment in buffer.fetch(1, 0.1):
                    breaks.add((fragment.environment, fragment.epoch))
                    if fragment.env.terminated[fragment.env.aborted].any():
                        wrong.append(repr(fragment))

        drainer = threading.Thread(target=drain)
        with rollouts:
            drainer.start()
            killer.start()
            rollouts.run()
            killer.join()
            with suppress(TimeoutError):
                assert sender.flush(10)
            sender.ledger.check()
            drained.set()
            drainer.join()
            buffer.ledger.check()
    if killer.error is not None:
        raise killer.error
    assert (
        len(killer.killed)
        == TRIALS
        == schedule.restarts + len([pid for pid in killer.killed if pid not in noticed])
    )
    late = [noticed[pid] - at for pid, (at, _) in killer.killed.items() if pid in noticed]
    print(f"noticed after {np.median(late) * 1000:.1f} ms, at most {max(late) * 1000:.1f} ms")
    assert max(late) < NOTICED_S
    # Those that were not killed went on meanwhile.
    for at, environment, gap in gaps:
        # A last step may be collected after the kill.
        since = at - gap - NOTICED_S
        own = [t for t, i in killer.killed.values() if i == environment and since <= t <= at]
        assert own, f"environment {environment} waited for {gap} s"
    (memory, descriptors), (memory_after, descriptors_after) = killer.holdings
    print(f"memory grew by {memory_after - memory} bytes")
    assert memory_after - memory < MAY_GROW
    assert abs(descriptors_after - descriptors) <= 2
    # The steps of each environment join, but for one break at each death.
    assert len(breaks) <= TRIALS + N
    assert not wrong
