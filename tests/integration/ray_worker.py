"""A policy in a rollout worker that is an actor of Ray."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from deployments import N_SEEDS, SEEDS, WAIT_S, OneByOne, Played, by_seed
from short_runs import SeedTraj, make_seeded

from parllel import BatchSpec
from parllel.agents import NumpyHandler, weights_of
from parllel.cages import Cage, CageInterface
from parllel.distributed.rollouts import (
    FragmentSender,
    RolloutWorker,
    SynchronousSchedule,
    WorkerContext,
)
from parllel.distributed.rollouts.on_ray import RayEpisodeStatistics, RayReplayBuffer, RayRollouts
from parllel.policies import PolicyAgent, load_policy
from parllel.samplers import BasicSampler
from parllel_patterns import allocate_samples


def build_worker(name: str, run: str, context: WorkerContext) -> RolloutWorker:
    """Put a worker together whose environments begin with an episode of each seed."""
    T = 10
    cages: list[CageInterface] = [
        Cage(partial(make_seeded, name, seed), seed=i, index=i, traj_info=SeedTraj)
        for i, seed in enumerate(SEEDS)
    ]
    handler = NumpyHandler(PolicyAgent(OneByOne(load_policy(run))))
    samples = allocate_samples(cages, BatchSpec(T, N_SEEDS), handler, next_observation=True)
    sender = FragmentSender(context.storage)
    context.stack.callback(sender.close, 0.0)
    return RolloutWorker(
        SynchronousSchedule(BasicSampler(BatchSpec(T, N_SEEDS), cages, handler, samples)),
        fragment_length=T,
        seed=0,
        producer=context.name,
        sender=sender,
        statistics=context.statistics,
    )


def in_a_ray_actor(name: str, run: Path) -> Played:
    """Play in a rollout worker; Ray has been started."""
    build = partial(build_worker, name, str(run))
    deadline, trajs = time.monotonic() + WAIT_S, []
    with (
        RayReplayBuffer(64) as buffer,
        RayEpisodeStatistics() as statistics,
        RayRollouts(build, 1, buffer, statistics) as workers,
    ):
        with load_policy(run) as policy:
            workers.load_weights(weights_of(PolicyAgent(policy)), 1)
        while len(played := by_seed(trajs)) < N_SEEDS:
            assert time.monotonic() < deadline, f"{len(played)} episodes have ended"
            buffer.fetch(1, 1.0)  # makes room for more
            workers.check()
            if ended := statistics.drain():
                # On a busy machine, all of them together may take longer.
                trajs, deadline = trajs + ended, time.monotonic() + WAIT_S
    return played
