"""What does a row of a batch cost beside a loop by hand over the same environments?

The loop steps environments and resets those that have ended; it checks nothing, keeps no trajectories and
stores only observations. With the torch policy, it also calls the agent on the row's observations. A ratio
of 0.8 says that the loop needs 0.8 of the sampler's time. Both sides count the CPU time of their thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from benchmarks.bench_absolute_rows import DrawnActions
from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.agents import NumpyHandler
from parllel.cages import VectorizedCage
from parllel.samplers import BasicSampler
from parllel.types import BatchSpec

T = 64
make_env = partial(gym.make, "CartPole-v1")


def make_handler(kind: str, B: int) -> Any:
    """Return a handler that gives drawn actions, or one of a policy of 2 x 64 units."""
    if kind == "drawn":
        return NumpyHandler(DrawnActions(B))
    from parllel.torch import CategoricalHead, CategoricalPgAgent, PgModel, TorchHandler

    model = PgModel(4, CategoricalHead(2), (64, 64), seed=0)
    return TorchHandler(CategoricalPgAgent(model, 2, seed=0))


class BareLoop:
    """Step environments by hand."""

    def __init__(self, B: int, act: Callable[[NDArray[Any], int], Any]) -> None:
        self.envs = [make_env() for _ in range(B)]
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

test_row = timed_sides(COMPARISONS)
