"""Processes of a run on Ray are killed: what was acknowledged is there, and nothing waits for ever."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from functools import partial

import psutil
import pytest
import ray
from ray_setup import (
    EITHER_WAY,
    LENGTH,
    QUARTER,
    actor_pid,
    build_ready,
    check_ledgers,
    env_pids,
    gone,
    publish,
    publish_until_error,
    rollouts,
    wait_until,
)
from weighted_agent import WeightedAgent

from parllel.distributed.rollouts import EpisodeStatistics, ReplayBuffer, WorkerContext
from parllel.distributed.rollouts.on_ray import WorkerOptions
from parllel.errors import RestartsUsedUpError, WorkerDiedError
from parllel.testing.dummy_envs import CountingEnv

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("ray_here")]


def pid_of(actor):
    """Return the process of an actor that has no method for it."""
    return ray.get(actor.__ray_call__.remote(lambda self: os.getpid()))


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def status_of(workers, name):
    return {status.name: status for status in workers.ask_statuses()}.get(name)


def wait_for_steps(workers, buffer, name, more=20):
    """Wait until a worker has made some more steps, for which there is to be room; return its status."""
    begun = status_of(workers, name)
    goal = (begun.steps if begun else 0) + more

    def made():
        workers.check()
        status = status_of(workers, name)
        return status if status and status.steps >= goal else None

    return wait_until(made, f"steps of {name!r}")


@EITHER_WAY
def test_an_environment_a_worker_and_the_statistics(ray_here, large_bytes):
    options = {"capacity": 10_000, "processes": True, "large_bytes": large_bytes}
    with rollouts(build_ready, 2, **options) as (buffer, statistics, workers):
        publish(workers, 1)
        first = wait_for_steps(workers, buffer, "worker 0")
        wait_for_steps(workers, buffer, "worker 1")
        envs = {n: env_pids(status_of(workers, f"worker {n}")) for n in range(2)}

        # An environment: its worker goes on, and starts it again.
        kill(envs[0][0])
        wait_until(lambda: status_of(workers, "worker 0").env_restarts == 1, "a restart")
        found = []

        def begun_anew():
            found.extend(buffer.fetch(1, 1.0))
            return any((f.producer, f.epoch) == ("worker 0", 1) for f in found)

        wait_until(begun_anew, "steps after it")
        envs[0] += env_pids(status_of(workers, "worker 0"))

        # A worker: its environments go with it, and one with a new name comes in its place.
        kill(actor_pid(first))
        wait_until(lambda: all(map(gone, envs[0])), "the end of its environments")
        again = wait_for_steps(workers, buffer, "worker 0, start 2")
        assert again.version == 1
        died = status_of(workers, "worker 0")
        assert (died.phase, died.counts["queued"]) == ("died", 0)
        assert "died" in died.reason

        # The statistics: workers keep their episodes until they are there again.
        assert wait_until(statistics.drain, "episodes")
        kill(pid_of(statistics.actor))
        wait_until(statistics.drain, "episodes that were reported before")
        statistics.drain()
        assert wait_until(statistics.drain, "episodes that were reported later")

        processes = [actor_pid(again), actor_pid(status_of(workers, "worker 1"))]
        envs[0] += env_pids(again)
        workers.close()
        check_ledgers(workers.statuses(), buffer)
        wait_until(lambda: all(map(gone, [*processes, *envs[0], *envs[1]])), "the end of all")
        check_fragments(buffer.added(), found + buffer.fetch(buffer.prepared(), 10))


def check_fragments(counts, fragments):
    """Compare all that was acknowledged with what a worker in this process makes.

    counts: how many there were of each worker.
    """
    assert {name: sum(f.producer == name for f in fragments) for name in counts} == counts
    undisturbed = {f.key: f for f in fragments if f.epoch == 0 and f.n_steps == LENGTH}
    expected = local_digests(max(f.sequence for f in undisturbed.values()) + 1)
    for (_, environment, _, sequence), fragment in undisturbed.items():
        if not fragment.env.aborted.any():
            assert fragment.digest() == expected[environment, sequence]
    # The environment that was killed did not end its episode.
    assert not any(f.env.terminated[f.env.aborted].any() for f in fragments)


def local_digests(n):
    """Return the digests of the first fragments of each environment, made in this process."""
    with ReplayBuffer(10_000) as buffer, ExitStack() as stack:
        context = WorkerContext("local", buffer, EpisodeStatistics(), stack)
        with build_ready(context, make_env=CountingEnv) as worker:
            worker.load_weights(WeightedAgent.weights(1), 1)
            worker.run(2 * n * LENGTH + 20)
            assert worker.sender.flush(20)
        found = buffer.fetch(buffer.prepared(), 1)
    return {(f.environment, f.sequence): f.digest() for f in found}


@EITHER_WAY
def test_the_manager(ray_here, large_bytes):
    with rollouts(processes=True, large_bytes=large_bytes) as (buffer, _, workers):
        publish(workers, 1)
        status = wait_for_steps(workers, buffer, "worker 0")
        processes = [actor_pid(status), *env_pids(status)]
        kill(pid_of(workers._manager))
        with pytest.raises(WorkerDiedError, match="RolloutManager: notice: its actor died"):
            wait_until(workers.check, "the error")
        with pytest.raises(WorkerDiedError, match="RolloutManager"):
            publish(workers, 2)
        wait_until(lambda: all(map(gone, processes)), "the end of its workers")
        # What they acknowledged is there.
        assert buffer.prepared() == buffer.counts()["added"] > 0


@EITHER_WAY
def test_the_buffer(ray_here, large_bytes):
    with rollouts(large_bytes=large_bytes) as (buffer, _, workers):
        publish(workers, 1)
        wait_until(buffer.prepared, "fragments")
        kill(pid_of(buffer.actor))
        with pytest.raises(WorkerDiedError, match="RayReplayBuffer: add: its actor died"):
            wait_until(workers.check, "the error of the worker")
        with pytest.raises(WorkerDiedError, match="RayReplayBuffer: fetch: its actor died"):
            buffer.fetch(1, 1.0)
        workers.close()
        buffer.close()
        buffer.close()


def test_a_worker_that_dies_again_and_again(ray_here):
    options = WorkerOptions(cpus=QUARTER.cpus, restarts=1)
    with rollouts(build_deadly, options=options) as (buffer, _, workers):
        with (
            pytest.warns(RuntimeWarning, match="worker 0, start 2 is parked"),
            pytest.raises(RestartsUsedUpError, match="all workers are parked"),
        ):
            publish_until_error(workers)
        assert [status.phase for status in workers.ask_statuses()] == ["died", "parked"]
        check_ledgers(workers.ask_statuses(), buffer)


def build_deadly(context):
    """Put a worker together that dies in its tenth step."""
    return build_ready(context, progress_handler=partial(die, []))


def die(steps, step):
    steps.append(step.environment)
    if len(steps) == 10:
        psutil.Process().kill()
