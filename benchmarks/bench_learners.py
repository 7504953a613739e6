"""What do two learners gain over one with the whole batch, and what does it cost to have the second on Ray?

All sides train PPO on made-up observations, with all steps in one process, or half of them in each of
two, on two cores of one machine. One side at a time works, so the other one's processes wait.
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
    """Settings of a side: number of learners, units of both hidden layers, and whether they are on Ray."""

    learners: int
    hidden: int
    on_ray: bool = False


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

    kind: type[Any] = Learners
    if config.on_ray:
        from parllel.distributed.rollouts.on_ray import RayLearners

        kind = RayLearners
    learners = stack.enter_context(kind(config.learners, build, config))
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


def between(first: Config, second: Config) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up both sides."""

    @contextmanager
    def make() -> Iterator[Sides]:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with ExitStack() as stack:
            stack.callback(torch.set_num_threads, threads)
            if first.on_ray:
                from parllel.distributed.rollouts.on_ray import RaySession

                stack.enter_context(RaySession(num_cpus=1))
            sides = [Training(config, stack) for config in (first, second)]

            def check() -> None:
                for side in sides:
                    assert [side.iterate() for _ in range(3)] == [T * B] * 3

            yield Sides(sides[0].iterate, sides[1].iterate, check)

    return make


SIZES = (64, 256, 1024)
SETTING = f"PPO on T={T} B={B} with two hidden layers of"

COMPARISONS = [
    *(
        Comparison(
            f"learners/hidden_{hidden}",
            f"{SETTING} {hidden}: two learners against one",
            between(Config(2, hidden), Config(1, hidden)),
            quick=hidden == 64,
            needs=("torch",),
        )
        for hidden in SIZES
    ),
    *(
        Comparison(
            f"learners/on_ray_{hidden}",
            f"{SETTING} {hidden}: two learners on Ray against two in processes",
            between(Config(2, hidden, on_ray=True), Config(2, hidden)),
            needs=("torch", "ray"),
        )
        for hidden in SIZES
    ),
]

test_learners = timed_sides(COMPARISONS)
