"""Rollout workers for actors of Ray, small ones, and waiting for what becomes of them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial

import psutil
import pytest
import ray
from ray._private.internal_api import get_memory_info_reply, get_state_from_address
from weighted_agent import WeightedAgent, weighted
from worker_setup import make_cages, make_worker, ready

from parllel.distributed.rollouts import FragmentSender, RolloutWorker
from parllel.distributed.rollouts.on_ray import (
    RayEpisodeStatistics,
    RayReplayBuffer,
    RayRollouts,
    WorkerOptions,
)
from parllel.distributed.rollouts.on_ray.ray_replay_buffer import LARGE_BYTES
from parllel.testing.dummy_envs import CountingEnv

# Ray is given two CPUs: all workers of a test have room at once.
QUARTER = WorkerOptions(cpus=0.25)
LENGTH = 4
# Small fragments take the way of large ones, too.
BOTH_WAYS = pytest.mark.parametrize("large_bytes", [LARGE_BYTES, 0], ids=["small", "large"])
# Of tests that take long: the way with more parts, and the other one in soak tests.
EITHER_WAY = pytest.mark.parametrize(
    "large_bytes",
    [
        pytest.param(LARGE_BYTES, id="small", marks=pytest.mark.soak),
        pytest.param(0, id="large"),
    ],
)


class SlowEnv(CountingEnv):
    """Takes a hundredth of a second for a step, so that nothing is filled in no time."""

    def step(self, action):
        time.sleep(0.01)
        return super().step(action)


def build_ready(
    place,
    *,
    make_env=SlowEnv,
    makes=None,
    n=2,
    processes=False,
    restarts=10,
    sender_capacity=2,
    **arguments,
):
    """Put a worker together whose actions say the weights that chose them."""
    makes = makes or [make_env] * n
    sources = (
        [
            make_worker(make, i, most=restarts, pause_s=0.1, timeout_s=60.0)
            for i, make in enumerate(makes)
        ]
        if processes
        else make_cages("single", makes=makes)
    )
    sender = FragmentSender(place.storage, capacity=sender_capacity)
    place.stack.callback(sender.close, 0.0)
    return RolloutWorker(
        ready(sources, weighted()),
        fragment_length=LENGTH,
        seed=0,
        producer=place.name,
        sender=sender,
        statistics=place.statistics,
        **arguments,
    )


@contextmanager
def rollouts(
    build=build_ready,
    n_workers=1,
    *,
    capacity=64,
    options=QUARTER,
    large_bytes=LARGE_BYTES,
    **arguments,
):
    """Yield a buffer, statistics and workers, which begin with version 1."""
    if arguments:
        build = partial(build, **arguments)
    with (
        RayReplayBuffer(capacity, large_bytes=large_bytes) as buffer,
        RayEpisodeStatistics() as statistics,
        RayRollouts(build, n_workers, buffer, statistics, options) as workers,
    ):
        yield buffer, statistics, workers


def publish(workers, version):
    """Publish weights that are the number of their version."""
    return workers.load_weights(WeightedAgent.weights(version), version)


def publish_until_error(workers):
    """Let workers begin, and wait until what ends them is raised."""
    publish(workers, 1)
    wait_until(workers.check, "the error")


def wait_until(condition, what, timeout_s=90.0):
    """Wait until a condition holds, and return what it returned.

    what: is waited for; a function is called to say it when it was in vain.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for {what() if callable(what) else what}")
        time.sleep(0.02)
    return found


def quiet_statuses(workers):
    """Wait until workers, which have no room for more fragments, rest; return what they say then."""
    said = []

    def resting():
        said.append([(status.name, status.counts) for status in workers.ask_statuses()])
        # For as long as an addition of several fragments may wait for room for the last: it is answered then.
        time.sleep(RayReplayBuffer.add_wait_s)
        return len(said) > 2 and said[-1] == said[-2] == said[-3]

    wait_until(resting, "workers that rest")
    return workers.ask_statuses()


def stored():
    """Return how many bytes there are in the object store, and how many have gone to a disk."""
    state = get_state_from_address(ray.get_runtime_context().gcs_address)
    stats = get_memory_info_reply(state).store_stats
    return stats.object_store_bytes_used, stats.spilled_bytes_total


def gone(process):
    """Whether a process has ended; it need not have been waited for.

    process: its number, which is another's some time after its end, or a psutil.Process.
    """
    try:
        if not isinstance(process, psutil.Process):
            process = psutil.Process(process)
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def actor_pid(status):
    """Return the process of a worker, from what it says of its place."""
    return int(status.where.rpartition("pid ")[2])


def check_ledgers(statuses, buffer):
    """Compare, at a quiet point, what workers made with what arrived; return the sums over all of them."""
    total = dict.fromkeys(("produced", "accepted", "stale", "rejected", "lost", "queued"), 0)
    added = buffer.added()
    for status in statuses:
        if not status.counts:
            continue
        for name, number in status.counts.items():
            total[name] += number
        assert status.counts["accepted"] == added.get(status.name, 0), (added, status)
    assert total["produced"] == sum(total.values()) - total["produced"], total
    counts = buffer.counts()
    assert counts["added"] == total["accepted"] == sum(added.values())
    assert counts["added"] == sum(counts.values()) - counts["added"], counts
    return total


def env_pids(status):
    """Return the processes of a worker's environments, and after them the fork server that starts them."""
    actor = psutil.Process(actor_pid(status))
    servers = [child.pid for child in actor.children()]
    return [c.pid for c in actor.children(recursive=True) if c.pid not in servers] + servers
