"""What does a row of a batch cost beside a loop by hand over the same environments?

The loop steps environments and resets those that have ended; it checks nothing, keeps no trajectories and
stores only observations. With the torch policy, it also calls the agent on the row's observations. A ratio
of 0.8 says that the loop needs 0.8 of the sampler's time. Both sides count the CPU time of their thread.

Over a worker and this process, the loop steps half of the environments, as two processes would that never
wait for each other and never share anything. Both sides count the time that passes. Two processes do share
caches, memory and power: how much slower a loop is while another process runs one too is a question of its
own, and says how near to the ideal any two processes can come on this machine.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from benchmarks.bench_absolute_rows import DrawnActions
from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.agents import NumpyHandler
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.samplers import BasicSampler
from parllel.types import BatchSpec

T = 64
CARTPOLE, HALF_CHEETAH = "CartPole-v1", "HalfCheetah-v5"


def make_handler(kind: str, B: int) -> Any:
    """Return a handler that gives drawn actions, or one of a policy of 2 x 64 units."""
    if kind == "drawn":
        return NumpyHandler(DrawnActions(B))
    from parllel.torch import CategoricalHead, CategoricalPgAgent, PgModel, TorchHandler

    model = PgModel(4, CategoricalHead(2), (64, 64), seed=0)
    return TorchHandler(CategoricalPgAgent(model, 2, seed=0))


class BareLoop:
    """Step environments by hand."""

    def __init__(
        self, B: int, act: Callable[[NDArray[Any], int], Any], env_id: str = CARTPOLE
    ) -> None:
        self.envs = [gym.make(env_id) for _ in range(B)]
        self.act = act
        self.observations = np.stack([env.reset(seed=i)[0] for i, env in enumerate(self.envs)])

    def run(self) -> int:
        """Step every environment T times."""
        observations = self.observations
        for t in range(T):
            actions = self.act(observations, t)
            for i, env in enumerate(self.envs):
                observation, _, terminated, truncated, _ = env.step(actions[i])
                if terminated or truncated:
                    observation, _ = env.reset()
                observations[i] = observation
        return T * len(self.envs)

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


def bare_act(kind: str, B: int) -> Callable[[NDArray[Any], int], Any]:
    """Return the actions of a row: drawn beforehand, or of the same policy."""
    if kind == "drawn":
        drawn = DrawnActions(B).actions
        return lambda observations, t: drawn[t % len(drawn)]
    import torch

    agent = make_handler(kind, B).agent
    noise = agent.draw_noise(T, B)

    def act(observations: NDArray[Any], t: int) -> Any:
        return agent.step(torch.from_numpy(observations), noise=noise[t])[0].numpy()

    return act


@contextmanager
def row_against_loop(kind: str, B: int) -> Iterator[Sides]:
    """Sample a batch, and step as many times by hand."""
    from parllel_patterns import allocate_samples

    make_env = partial(gym.make, CARTPOLE)
    with ExitStack() as stack:
        cages = [VectorizedCage([make_env] * B, seeds=range(B))]
        handler = make_handler(kind, B)
        samples = allocate_samples(cages, BatchSpec(T, B), handler)
        sampler = stack.enter_context(BasicSampler(BatchSpec(T, B), cages, handler, samples))
        loop = BareLoop(B, bare_act(kind, B))
        stack.callback(loop.close)

        def sample() -> int:
            sampler.collect_batch(0)
            return T * B

        yield Sides(sample, loop.run, lambda: None, clock=time.thread_time)


class DrawnNumbers(DrawnActions):
    """Give actions of a Box that were drawn beforehand, row by row."""

    def __init__(self, B: int, size: int) -> None:
        super().__init__(B)
        self.actions = np.random.default_rng(0).uniform(-1, 1, (len(self.actions), B, size))


@contextmanager
def row_over_worker(env_id: str, B: int) -> Iterator[Sides]:
    """Sample a batch over a worker and this process, and step half of the environments by hand."""
    from parllel_patterns import allocate_samples

    make_env = partial(gym.make, env_id)
    with ExitStack() as stack:
        cage = SynchronizedProcessCage(
            [make_env] * B, n_workers=1, participate=True, seeds=range(B)
        )
        space = cage.spaces.action
        agent = DrawnNumbers(B, *space.shape) if space.shape else DrawnActions(B)
        handler = NumpyHandler(agent)
        samples = allocate_samples([cage], BatchSpec(T, B), handler)
        sampler = stack.enter_context(BasicSampler(BatchSpec(T, B), [cage], handler, samples))
        loop = make_half(env_id, B // 2)
        stack.callback(loop.close)

        def sample() -> int:
            sampler.collect_batch(0)
            return T * B

        def step_half() -> int:
            return 2 * loop.run()

        yield Sides(sample, step_half, lambda: None)


BATCHES = 16  # of one loop, so that what the two say to each other counts for little
TIMEOUT_S = 60.0  # of the process with the other half


def make_half(env_id: str, n: int) -> BareLoop:
    """Return a loop over n environments, with actions drawn beforehand."""
    with gym.make(env_id) as env:
        space: Any = env.action_space
    agent = DrawnNumbers(n, *space.shape) if space.shape else DrawnActions(n)
    drawn = agent.actions.astype(space.dtype)
    return BareLoop(n, lambda observations, t: drawn[t % len(drawn)], env_id)


def step_when_told(env_id: str, n: int, pipe: Connection) -> None:
    """Step environments for as many batches as the other end says, until it closes."""
    loop = make_half(env_id, n)
    while n_batches := pipe.recv():
        for _ in range(n_batches):
            loop.run()
        pipe.send(None)
    loop.close()


@contextmanager
def two_halves(env_id: str, B: int) -> Iterator[Sides]:
    """Step half of the environments by hand, while another process steps the other half, and alone."""
    here, there = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(
        target=step_when_told, args=(env_id, B // 2, there), daemon=True
    )
    with ExitStack() as stack:
        loop = make_half(env_id, B // 2)
        stack.callback(loop.close)
        other.start()
        there.close()
        stack.callback(other.kill)  # a process that has ended ignores it
        stack.callback(other.join, TIMEOUT_S)
        stack.callback(here.send, 0)

        def alone() -> int:
            return sum(loop.run() for _ in range(BATCHES))

        def beside_the_other() -> int:
            here.send(BATCHES)
            steps = alone()
            if not here.poll(TIMEOUT_S):
                raise RuntimeError(f"{env_id}: the other half did not answer within {TIMEOUT_S} s")
            here.recv()
            return steps

        yield Sides(beside_the_other, alone, lambda: None)


GOALS: dict[str, dict[int, float | None]] = {
    "drawn": {1: None, 4: 0.78, 16: 0.86},
    "torch": {1: 0.82, 4: 0.82, 16: 0.82},
}
WHAT = {"drawn": "actions drawn beforehand", "torch": "a torch policy of 2x64"}

COMPARISONS = [
    Comparison(
        f"row/{kind}-{B}",
        f"A row of {B} CartPoles in this process, {WHAT[kind]}: against a loop by hand",
        partial(row_against_loop, kind, B),
        target=goal,
        needs=("torch",) if kind == "torch" else (),
    )
    for kind, goals in GOALS.items()
    for B, goal in goals.items()
]
OVER_A_WORKER: list[tuple[str, str, int, float, tuple[str, ...]]] = [
    ("cartpole", CARTPOLE, 4, 0.57, ()),
    ("cartpole", CARTPOLE, 16, 0.78, ()),
    ("cartpole", CARTPOLE, 128, 0.86, ()),
    ("half-cheetah", HALF_CHEETAH, 16, 0.9, ("mujoco",)),
]
for name, env_id, B, goal, needs in OVER_A_WORKER:
    COMPARISONS += [
        Comparison(
            f"row/worker-{name}-{B}",
            f"A row of {B} {env_id} over a worker and this process: against a loop of each half by hand",
            partial(row_over_worker, env_id, B),
            target=goal,
            needs=needs,
        ),
        Comparison(
            f"row/halves-{name}-{B}",
            f"A loop of half of {B} {env_id} by hand, beside one in another process: against alone",
            partial(two_halves, env_id, B),
            reads="slower",
            needs=needs,
        ),
    ]

test_row = timed_sides(COMPARISONS)
