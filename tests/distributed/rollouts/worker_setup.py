"""Rollout workers of small environments, with both schedules."""

from __future__ import annotations

import threading
from functools import partial

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.cages import Cage, ProcessCage, TrajInfo, VectorizedCage
from parllel.distributed.rollouts import (
    AsynchronousSchedule,
    EnvWorker,
    FragmentCutter,
    FragmentSender,
    ReplayBuffer,
    RolloutWorker,
    SynchronousSchedule,
)
from parllel.distributed.rollouts.fragments.fragment_noise import FragmentNoise
from parllel.samplers import BasicSampler, RecurrentSampler
from parllel.system.processes import RestartBudget
from parllel.testing.dummy_agents import CountingAgent, RecurrentCountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel_patterns import allocate_samples

B, T = 4, 6
SPEC = BatchSpec(T, B)
# Episodes of environment b; those of the last one never end.
LENGTHS = ((3, 5), 1, 4, 10_000)
SEED = 5
LENGTH = 4  # of fragments


def factories(layout="box"):
    return [partial(CountingEnv, n, end="alternate", layout=layout) for n in LENGTHS]


def make_handler(recurrent=False):
    # Blocks are filled with copies, which a recurrent agent remembers apart.
    agent = RecurrentCountingAgent(4, n_envs=2 * B) if recurrent else CountingAgent(4)
    return NumpyHandler(agent)


def make_cages(kind, *, makes=None, reset_automatically=True, traj_info=TrajInfo):
    makes = factories() if makes is None else makes
    if kind == "vectorized":
        options = {"reset_automatically": reset_automatically, "traj_info": traj_info}
        return [VectorizedCage(makes, seeds=list(range(len(makes))), **options)]
    if kind == "workers":
        return [make_worker(make, i) for i, make in enumerate(makes)]
    cls = Cage if kind == "single" else ProcessCage
    return [cls(make, seed=i, index=i, traj_info=traj_info) for i, make in enumerate(makes)]


def make_worker(make, i=0, *, most=10, pause_s=0.0, timeout_s=20.0):
    budget = RestartBudget(most, 600.0, pause_s, pause_s)
    return EnvWorker(make, seed=i, index=i, budget=budget, timeout_s=timeout_s)


def ready(
    sources,
    handler=None,
    *,
    step=(),
    rows=2,
    batch_size=None,
    max_wait_s=0.01,
    timeout_s=60.0,
    **options,
):
    handler = make_handler() if handler is None else handler
    cages = [getattr(source, "cage", source) for source in sources]
    n = sum(cage.n for cage in cages)
    samples = allocate_samples(cages, BatchSpec(rows, n), handler, step, **options)
    return AsynchronousSchedule(
        sources,
        handler,
        samples,
        batch_size=batch_size or n,
        max_wait_s=max_wait_s,
        timeout_s=timeout_s,
        step_transforms=step,
    )


def make_sampler(handler=None, *, recurrent=False, step=(), **options):
    handler = make_handler(recurrent) if handler is None else handler
    cages = make_cages("vectorized", reset_automatically=not recurrent, **options)
    samples = allocate_samples(cages, SPEC, handler, step, next_observation=True)
    return (RecurrentSampler if recurrent else BasicSampler)(SPEC, cages, handler, samples, step)


def rows(handler=None, **options):
    return SynchronousSchedule(make_sampler(handler, **options))


def digests(fragments, per_environment):
    """Return the digests of the first fragments of each environment by key."""
    found = {}
    for fragment in fragments:
        assert fragment.environment in range(B)
        if fragment.sequence < per_environment:
            found[fragment.key[1:]] = fragment.digest()
    assert len(found) == B * per_environment
    return found


def collect(schedule, n_steps, *, length=LENGTH, published=None, **options):
    """Run a schedule and return what a storage was sent; published: the weights that it begins with."""
    with ReplayBuffer(1000) as buffer, FragmentSender(buffer, capacity=8) as sender:
        with RolloutWorker(
            schedule, fragment_length=length, seed=SEED, sender=sender, **options
        ) as worker:
            if published is not None:
                assert worker.load_weights(published, 1)
            assert worker.run(n_steps) >= n_steps
            assert worker.n_steps >= n_steps
        assert sender.flush(20)
        sender.ledger.check()
        found = buffer.fetch(buffer.prepared(), 10)
        assert sender.ledger.counts()["accepted"] == len(found)
    return found


def cut_batches(sampler, per_environment, *, version=0):
    """Cut the batches of a plain sampler, with the noise of the fragments that they will be in."""
    recurrent = isinstance(sampler, RecurrentSampler)
    length = T if recurrent else LENGTH
    cutter = FragmentCutter(length, recurrent=recurrent)
    noise, numbers = FragmentNoise(sampler.handler, SEED, length), [0] * B
    fragments = []

    def draw(n_rows, n_columns):
        steps = [cutter.position(b) for b in range(n_columns)]
        return noise.of_batch(n_rows, [(b, *step) for b, step in enumerate(steps)])

    sampler.handler.noise_source = draw
    with sampler:
        while min(numbers) < per_environment:
            fragments += cutter.add_batch(sampler.collect_batch(0)[0], version)
            numbers = [sum(f.environment == b for f in fragments) for b in range(B)]
    return digests(fragments, per_environment)


def blocked_worker():
    """Return a worker whose run waits in its progress handler, what lets it go on, and what says it waits."""
    waits, goes_on = threading.Event(), threading.Event()

    def wait(step):
        waits.set()
        assert goes_on.wait(30)

    schedule = ready(make_cages("single"))
    worker = RolloutWorker(schedule, fragment_length=LENGTH, seed=0, progress_handler=wait)
    return worker, waits, goes_on
