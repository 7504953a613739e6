"""What do two learners gain over one with the whole batch, on two cores?

Both sides train PPO on made-up observations, with all steps in one process, or half of them in each of
two. One side at a time works, so the other one's processes wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.cages import VectorizedCage
from parllel.logging import Logger
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.types import BatchSpec

T, B, INPUTS = 64, 16, 64


@dataclass(frozen=True)
class Config:
    """Settings of a side: number of learners, and units of both hidden layers."""

    learners: int
    hidden: int


class Noise(gym.Env[Any, Any]):
    """One random observation again and again, in episodes of 100 steps."""

    observation_space = gym.spaces.Box(-math.inf, math.inf, (INPUTS,))
    action_space = gym.spaces.Box(-1.0, 1.0, (6,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._n_left = 100
        self._observation = self.np_random.normal(size=INPUTS).astype(np.float32)
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Reward the action."""
        self._n_left -= 1
        return self._observation, float(action[0]), not self._n_left, False, {}


def build(config: Config, stack: ExitStack, folder: RunFolder, console: Any) -> OnPolicyRunner:
    """Build the run of one learner."""
    from parllel.torch import PPO, Learners, TorchHandler, agent_for
    from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
    from parllel_patterns import PPO_DEFAULTS, build_sampler

    learners = stack.enter_context(Learners(config.learners, build, config))
    spec, seeds = learners.share_of(BatchSpec(T, B)), learners.seeds(0)
    cages = [VectorizedCage([Noise] * spec.B, seeds=seeds.spawn("environments", spec.B))]
    agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(config.hidden, config.hidden))
    transforms = [EstimateAdvantage(0.99, 0.95), NormalizeAdvantage()]
    sampler = build_sampler(spec, cages, TorchHandler(agent), [], transforms)
    stack.callback(sampler.close)
    algorithm = PPO(agent, **{**PPO_DEFAULTS, "learning_rate": 1e-6}, seed=0)
    return OnPolicyRunner(
        spec,
        sampler,
        algorithm,
        learners=learners,
        n_steps=T * B,
        logger=stack.enter_context(Logger([])),
        log_interval_steps=T * B,
    )


class Training:
    """A run that goes on by one batch whenever it is asked to."""

    def __init__(self, config: Config, stack: ExitStack) -> None:
        scratch = stack.enter_context(TemporaryDirectory())
        self.runner = build(config, stack, RunFolder(Path(scratch), "run"), None)
        self.cycle = self.runner.cycle
        self.cycle.begin()
        self.runner.algorithm.prepare()
        self.elapsed_steps = 0

    def iterate(self) -> int:
        """Sample a batch and learn from it; return its number of steps."""
        samples, *_ = self.cycle.sample(self.elapsed_steps, timed=False)
        steps = self.cycle.count_steps(samples)
        self.elapsed_steps += steps
        self.cycle.learn(self.elapsed_steps, samples)
        return steps


def against_one(hidden: int) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up two learners, and one."""

    @contextmanager
    def make() -> Iterator[Sides]:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with ExitStack() as stack:
            stack.callback(torch.set_num_threads, threads)
            two, one = (Training(Config(n, hidden), stack) for n in (2, 1))

            def check() -> None:
                for side in (two, one):
                    assert [side.iterate() for _ in range(3)] == [T * B] * 3

            yield Sides(two.iterate, one.iterate, check)

    return make


COMPARISONS = [
    Comparison(
        f"learners/hidden_{hidden}",
        f"PPO on T={T} B={B} with two hidden layers of {hidden}: two learners against one",
        against_one(hidden),
        quick=hidden == 64,
        needs=("torch",),
    )
    for hidden in (64, 256, 1024)
]

test_learners = timed_sides(COMPARISONS)
