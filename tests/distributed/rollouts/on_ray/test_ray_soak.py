"""Hundreds of kills of workers on Ray and of their environments: nothing is lost, and nothing grows.

PARLLEL_SOAK_TRIALS (200) says how many are killed, PARLLEL_SOAK_FRAGMENTS (100,000) how many fragments there
are to be, and PARLLEL_SOAK_SECONDS (3600) how long it takes at least.
"""

from __future__ import annotations

import os
import random
import signal
import time

import psutil
import pytest
import ray
from private_memory import private_memory
from ray_setup import (
    actor_pid,
    build_ready,
    check_ledgers,
    env_pids,
    gone,
    publish,
    rollouts,
    wait_until,
)

from parllel.distributed.rollouts.on_ray import WorkerOptions
from parllel.testing.dummy_envs import CountingEnv

pytestmark = [pytest.mark.soak, pytest.mark.timeout(4 * 3600), pytest.mark.usefixtures("ray_here")]
TRIALS = int(os.environ.get("PARLLEL_SOAK_TRIALS", 200))
FRAGMENTS = int(os.environ.get("PARLLEL_SOAK_FRAGMENTS", 100_000))
SECONDS = float(os.environ.get("PARLLEL_SOAK_SECONDS", 3600))
N_WORKERS = 2
CAPACITY = 256
BACK_S = 120.0  # a hang, and no slow machine
MAY_GROW = 8 * 2**20  # bytes
PUBLICATIONS = 3000
MAY_GROW_EACH = 300  # bytes, with all calls in between


class Consumer:
    """Fetch fragments, and compare each with the one before it."""

    def __init__(self, buffer):
        self.buffer, self.n, self.last = buffer, 0, {}

    def fetch(self):
        for fragment in self.buffer.fetch(8, 1.0):
            self.n += 1
            place = fragment.producer, fragment.environment
            number = fragment.epoch, fragment.sequence
            assert number > self.last.get(place, (-1, -1))
            self.last[place] = number
            assert fragment.agent.agent_info.weight.tolist() == fragment.env.version.tolist()
            assert not fragment.env.terminated[fragment.env.aborted].any()


def living(workers):
    """Return the statuses of the workers that run, once all of them do."""
    found = [status for status in workers.ask_statuses() if status.phase == "running"]
    return found if len(found) == N_WORKERS and all(status.counts for status in found) else None


def test_kills(ray_here):
    # Pauses double with each restart that counts: few do here.
    options = WorkerOptions(cpus=0.25, restarts=10 * TRIALS, within_s=10.0)
    arguments = {"make_env": CountingEnv, "processes": True, "restarts": 10 * TRIALS}
    begun, killed, memory, dead = time.monotonic(), 0, [], []
    with rollouts(build_ready, N_WORKERS, capacity=CAPACITY, options=options, **arguments) as (
        buffer,
        statistics,
        workers,
    ):
        actor = psutil.Process(ray.get(buffer.actor.__ray_call__.remote(lambda _: os.getpid())))
        consumer, version = Consumer(buffer), 0

        def running():
            consumer.fetch()
            statistics.drain()
            workers.check()
            return living(workers)

        def waited_for():
            return f"all workers: {workers.ask_statuses()}"

        while killed < TRIALS or consumer.n < FRAGMENTS or time.monotonic() - begun < SECONDS:
            version += 1
            publish(workers, version)
            consumer.fetch()
            statuses = wait_until(running, waited_for, BACK_S)
            if killed < TRIALS and time.monotonic() - begun > killed * SECONDS / TRIALS:
                status = random.choice(statuses)
                # Not their numbers, which are those of others an hour later.
                processes = [psutil.Process(pid) for pid in env_pids(status)]
                whole = random.random() < 0.5
                os.kill(actor_pid(status) if whole else processes[0].pid, signal.SIGKILL)
                dead += processes if whole else processes[:1]
                killed += 1
                if killed in (TRIALS // 5 + 1, TRIALS):
                    memory.append(private_memory() + private_memory(actor.pid))
        workers.close()
        total = check_ledgers(workers.statuses(), buffer)
        assert buffer.counts()["accepted"] == consumer.n >= FRAGMENTS
        print(f"{killed} kills, {total}, memory grew by {memory[-1] - memory[0]} bytes")
        wait_until(lambda: all(map(gone, dead)), "the end of all that was killed", 10.0)
    assert memory[-1] - memory[0] < MAY_GROW


def test_publications_leave_nothing_in_the_trainer():
    with rollouts(build_ready, N_WORKERS) as (buffer, _, workers):
        consumer, memory = Consumer(buffer), []
        for version in range(1, PUBLICATIONS + 1):
            publish(workers, version)
            consumer.fetch()
            wait_until(
                lambda version=version: {s.version for s in workers.ask_statuses()} == {version},
                "weights",
            )
            if version in (PUBLICATIONS // 5, PUBLICATIONS):
                memory.append(private_memory())
        print(f"{PUBLICATIONS} publications, memory grew by {memory[1] - memory[0]} bytes")
    assert memory[1] - memory[0] < 0.8 * PUBLICATIONS * MAY_GROW_EACH
