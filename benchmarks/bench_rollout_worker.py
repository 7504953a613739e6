"""What is the overhead of rollout workers, and the gain of acting for ready environments first?

Fragments go to a storage that drops them, through a sender's thread. With environments that sleep, a sampler
waits in each row for the slowest of them. The CPU time of a worker that waits is counted against the time
that passes: 20 times less is a twentieth of a core.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import gymnasium as gym

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.cages import CageInterface, ProcessCage, VectorizedCage
from parllel.distributed.rollouts import (
    AsynchronousSchedule,
    FragmentSender,
    ReplayBufferInterface,
    RolloutWorker,
    SampleFragment,
    Schedule,
    SynchronousSchedule,
)
from parllel.samplers import BasicSampler
from parllel.testing import CountingEnv
from parllel.testing.dummy_agents import CountingAgent
from parllel_patterns import allocate_samples

N, T, LENGTH, STEPS = 16, 64, 64, 64
BUSY_S, BLOCKED_S = (1e-3, 20e-3), (0.1, 0.2)


class SleepingEnv(CountingEnv):
    """Sleeps in each step, mostly shortly: the logarithms of the times are uniform."""

    def __init__(self, seed: int, least_s: float, most_s: float) -> None:
        super().__init__(1_000_000)
        self._naps, self._limits = random.Random(seed), (math.log(least_s), math.log(most_s))

    def step(self, action: Any) -> Any:
        """Sleep and step."""
        time.sleep(math.exp(self._naps.uniform(*self._limits)))
        return super().step(action)


class DroppingStorage(ReplayBufferInterface):
    """Takes every fragment at once and forgets it."""

    def add(self, fragments: Sequence[SampleFragment], timeout_s: float) -> int:
        """Take all."""
        return len(fragments)

    def fetch(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Return none."""
        return []

    def prepared(self) -> int:
        """Return 0."""
        return 0

    def new_version(self, version: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def worker_of(schedule: Schedule, stack: ExitStack) -> RolloutWorker:
    """Return a worker whose fragments are dropped."""
    sender = stack.enter_context(FragmentSender(DroppingStorage()))
    worker = RolloutWorker(schedule, fragment_length=LENGTH, seed=0, sender=sender)
    return stack.enter_context(worker)


def cartpole_sampler() -> BasicSampler:
    """Return a sampler of CartPole in this process, with the usual policy."""
    from parllel.torch import SmallPolicyHandler, agent_for

    cages = [VectorizedCage([partial(gym.make, "CartPole-v1")] * N, seeds=list(range(N)))]
    agent: Any = agent_for(cages[0].spaces, seeds=Seeds(0))
    handler, spec = SmallPolicyHandler(agent), BatchSpec(T, N)
    samples = allocate_samples(cages, spec, handler, next_observation=True)
    return BasicSampler(spec, cages, handler, samples)


@contextmanager
def against_its_sampler() -> Iterator[Sides]:
    """Set up a worker that drives a sampler, and the same sampler alone."""
    with ExitStack() as stack:
        worker = worker_of(SynchronousSchedule(cartpole_sampler()), stack)
        sampler = stack.enter_context(cartpole_sampler())

        def ours() -> int:
            return worker.run(T * N)

        def theirs() -> int:
            sampler.collect_batch(0)
            return T * N

        def check() -> None:
            assert ours() == theirs()

        yield Sides(ours, theirs, check, note=f"CartPole, T={T} B={N}, fragments of {LENGTH}")


def sleeping_cages(limits_s: tuple[float, float]) -> list[CageInterface]:
    """Return cages of environments that sleep in each step, each in a process."""
    # Forks, as their start is not measured.
    return [
        ProcessCage(partial(SleepingEnv, i, *limits_s), seed=i, index=i, start_method="fork")
        for i in range(N)
    ]


def ready_worker(limits_s: tuple[float, float], stack: ExitStack) -> RolloutWorker:
    """Return a worker that acts for whichever environments are ready."""
    cages, handler = sleeping_cages(limits_s), NumpyHandler(CountingAgent(4))
    samples = allocate_samples(cages, BatchSpec(2, N), handler)
    schedule = AsynchronousSchedule(cages, handler, samples, batch_size=4, max_wait_s=1e-3)
    return worker_of(schedule, stack)


@contextmanager
def against_rows() -> Iterator[Sides]:
    """Set up a worker of either schedule."""
    with ExitStack() as stack:
        ready = ready_worker(BUSY_S, stack)
        cages, handler, spec = (
            sleeping_cages(BUSY_S),
            NumpyHandler(CountingAgent(4)),
            BatchSpec(4, N),
        )
        samples = allocate_samples(cages, spec, handler, next_observation=True)
        rows = worker_of(SynchronousSchedule(BasicSampler(spec, cages, handler, samples)), stack)

        def check() -> None:
            assert ready.run(STEPS) >= STEPS
            assert rows.run(STEPS) == STEPS

        note = f"{N} environments whose steps take {BUSY_S[0] * 1e3:g} to {BUSY_S[1] * 1e3:g} ms"
        yield Sides(partial(ready.run, STEPS), partial(rows.run, STEPS), check, note)


def cpu(limits_s: tuple[float, float]) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up a worker, whose time is counted in either way."""

    @contextmanager
    def make() -> Iterator[Sides]:
        counted_s = 0.0

        def counted(clock: Callable[[], float]) -> int:
            nonlocal counted_s
            began = clock()
            n = worker.run(1)
            counted_s += clock() - began
            return n

        with ExitStack() as stack:
            worker = ready_worker(limits_s, stack)

            def check() -> None:
                assert worker.run(N) >= N

            note = f"{N} environments whose steps take {limits_s[0] * 1e3:g} to {limits_s[1] * 1e3:g} ms"
            ours, theirs = partial(counted, time.process_time), partial(counted, time.perf_counter)
            yield Sides(ours, theirs, check, note, clock=lambda: counted_s)

    return make


COMPARISONS = [
    Comparison(
        "rollouts/rows",
        "a worker that drives a sampler, against the sampler alone",
        against_its_sampler,
        reads="slower",
        target=1.18,
        aim=1.05,
        needs=("torch",),
    ),
    Comparison(
        "rollouts/ready",
        "to act for whoever is ready, against all in step, environments that sleep",
        against_rows,
        target=2.0,
        aim=3.0,
        quick=False,
    ),
    Comparison(
        "rollouts/cpu-blocked",
        "CPU time of a worker that waits, against the time that passes",
        cpu(BLOCKED_S),
        target=20.0,
        aim=40.0,
        quick=False,
    ),
]

test_rollout_worker = timed_sides(COMPARISONS)
