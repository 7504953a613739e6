"""Ours: workers in threads, in processes or on Ray, and a consumer that fetches fragments."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias

from benchmarks.peers.side import Side
from benchmarks.peers.workload import Workload
from parllel import BatchSpec, Seeds
from parllel.agents import weights_of
from parllel.cages import Spaces
from parllel.distributed.rollouts import (
    EpisodeStatistics,
    FragmentSender,
    LocalRollouts,
    ProcessRollouts,
    ReplayBuffer,
    ReplayBufferInterface,
    Rollouts,
    RolloutWorker,
    SampleFragment,
    SynchronousSchedule,
    WorkerContext,
)
from parllel.errors import WorkerTimeoutError
from parllel.samplers import Plan
from parllel.torch import PgAgent, SmallPolicyHandler, TorchHandler, agent_for
from parllel_patterns import build_cages, build_sampler

HANDLERS = {"torch": TorchHandler, "compiled": SmallPolicyHandler}
FETCH_S = 60.0
Parts: TypeAlias = tuple[ReplayBufferInterface, EpisodeStatistics, Rollouts]


def build_worker(
    context: WorkerContext, workload: Workload, settings: dict[str, Any]
) -> RolloutWorker:
    """Put one of the workers together; they share the environments of the workload."""
    import torch

    torch.set_num_threads(1)
    n_envs = workload.B // settings["n_workers"]
    seeds = Seeds(Seeds(workload.seed).integer(context.name))
    processes = settings.get("processes", 0)
    plan = Plan(processes, settings.get("participate", 0)) if processes else False
    cages = build_cages(workload.factory(), n_envs, seeds=seeds, parallel=plan)
    handler = HANDLERS[settings["policy"]](agent_of(cages[0].spaces, settings, seeds))
    sampler = build_sampler(BatchSpec(workload.T, n_envs), cages, handler, next_observation=True)
    sender = FragmentSender(context.storage, capacity=settings["queue"])
    context.stack.callback(sender.close, 0.0)
    return RolloutWorker(
        SynchronousSchedule(sampler),
        fragment_length=workload.T,
        seed=seeds.integer("noise"),
        producer=context.name,
        sender=sender,
        statistics=context.statistics,
    )


def agent_of(spaces: Spaces, settings: dict[str, Any], seeds: Seeds) -> PgAgent:
    """Return an agent with two layers, of 64 units without the setting `hidden`."""
    return agent_for(spaces, seeds=seeds, hidden_sizes=(settings.get("hidden", 64),) * 2)


def published_weights(workload: Workload, settings: dict[str, Any]) -> Any:
    """Return weights that fit the workers' agents."""
    cages = build_cages(workload.factory(), 1, seeds=Seeds(1))
    try:
        return weights_of(agent_of(cages[0].spaces, settings, Seeds(1)))
    finally:
        for cage in cages:
            cage.close()


class ParllelSide(Side):
    """Fetch as many fragments as there are environments, so B x T steps in each turn.

    Settings: `where`, "threads", "processes" or "ray"; `n_workers`; `policy`, "torch" or "compiled"; `queue`,
    fragments that wait in each worker; `capacity`, batches that wait in the buffer; `processes`, that step
    the environments of a worker, without it the worker does.
    """

    libraries = ("ray", "torch")

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        self._workload = workload
        build = partial(build_worker, workload=workload, settings=settings)
        capacity, n_workers = settings["capacity"] * workload.B, settings["n_workers"]
        with ExitStack() as stack:
            starts: dict[str, Callable[..., Parts]] = {
                "threads": partial(start_here, LocalRollouts),
                "processes": partial(start_here, ProcessRollouts),
                "ray": start_on_ray,
            }
            start = starts[settings["where"]]
            self._buffer, self._statistics, self._workers = start(build, n_workers, capacity, stack)
            self._stack = stack.pop_all()
        self._workers.load_weights(published_weights(workload, settings), 1)

    def fetch(self) -> list[SampleFragment]:
        """Return B fragments."""
        deadline = time.monotonic() + FETCH_S
        while time.monotonic() < deadline:
            self._workers.check()
            # As a FragmentSampler does, which copies them into its batch. RLlib's arrays are views, too.
            fragments = self._buffer.borrow(self._workload.B, 1.0)
            if fragments:
                self._statistics.drain()
                return fragments
        raise WorkerTimeoutError(f"expected {self._workload.B} fragments within {FETCH_S:g} s")

    def run(self) -> int:
        """Fetch a batch."""
        return sum(fragment.n_steps for fragment in self.fetch())

    def first(self) -> dict[str, float]:
        """Fetch the first batch."""
        fragments = self.fetch()
        return {
            "steps": sum(fragment.n_steps for fragment in fragments),
            "reward": float(sum(fragment.env.reward.sum() for fragment in fragments)),
        }

    def close(self) -> None:
        """Stop the workers, and Ray."""
        self._stack.close()


def start_here(kind: Any, build: Any, n_workers: int, capacity: int, stack: ExitStack) -> Parts:
    """Start workers in threads of this process, or in processes."""
    buffer, statistics = stack.enter_context(ReplayBuffer(capacity)), EpisodeStatistics()
    workers = kind(build, n_workers, buffer, statistics)
    return buffer, statistics, stack.enter_context(workers)


def start_on_ray(build: Any, n_workers: int, capacity: int, stack: ExitStack) -> Parts:
    """Start workers on a Ray of their own."""
    from parllel.distributed.rollouts.on_ray import (
        RayEpisodeStatistics,
        RayReplayBuffer,
        RayRollouts,
        RaySession,
        WorkerOptions,
    )

    stack.enter_context(RaySession(num_cpus=n_workers))
    buffer = stack.enter_context(RayReplayBuffer(capacity))
    statistics = stack.enter_context(RayEpisodeStatistics())
    workers = RayRollouts(build, n_workers, buffer, statistics, WorkerOptions(cpus=1))
    return buffer, statistics, stack.enter_context(workers)
