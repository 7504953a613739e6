"""How much time is saved by sampling the next batch while learning from this one?"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.samplers import AsynchronousSampler, BasicSampler
from parllel.seeding import Seeds
from parllel.types import BatchSpec

T, B = 64, 16
HIDDEN = (64, 64)
IMAGE = (84, 84, 4)
SPEC = BatchSpec(T, B)
# A fork is there at once, with PyTorch loaded. Later versions warn of forks while there are threads.
START_METHOD = "fork" if sys.version_info < (3, 12) and hasattr(os, "fork") else None


def make_agent() -> Any:
    """Make a small policy for CartPole."""
    from parllel.torch import CategoricalHead, CategoricalPgAgent, PgModel

    return CategoricalPgAgent(PgModel((4,), CategoricalHead(2), HIDDEN, seed=0), 2, seed=0)


def make_sampler(agent: Any = None) -> BasicSampler:
    """Build a sampler of CartPole with what PPO needs, in this process or another."""
    import torch

    from parllel.torch import TorchHandler
    from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
    from parllel_patterns import allocate_samples, build_cages

    torch.set_num_threads(1)
    cages = build_cages(partial(gym.make, "CartPole-v1"), B, seeds=Seeds(0))
    handler = TorchHandler(make_agent() if agent is None else agent)
    transforms = [EstimateAdvantage(0.99, 0.95), NormalizeAdvantage()]
    samples = allocate_samples(cages, SPEC, handler, transforms)
    return BasicSampler(SPEC, cages, handler, samples, batch_transforms=transforms)


class Training:
    """PPO with a sampler: in a process of its own with some staleness, or here.

    Args:
        max_staleness: of the AsynchronousSampler; None samples in this process.
        stack: closes the sampler.
    """

    def __init__(self, max_staleness: int | None, stack: ExitStack) -> None:
        from parllel.torch import PPO
        from parllel_patterns import PPO_DEFAULTS

        agent = make_agent()
        self.algorithm = PPO(agent, **PPO_DEFAULTS, seed=0)
        self.sampler: Any
        if max_staleness is None:
            self.sampler = make_sampler(agent)
        else:
            self.sampler = AsynchronousSampler(
                make_sampler,
                agent=agent,
                max_staleness=max_staleness,
                start_method=START_METHOD,
            )
        stack.callback(self.sampler.close)

    def iterate(self) -> int:
        """Sample, learn, publish; return the number of steps."""
        samples, _ = self.sampler.collect_batch(0)
        self.algorithm.optimize_agent(SPEC.size, samples)
        if isinstance(self.sampler, AsynchronousSampler):
            self.sampler.publish()
        return SPEC.size

    def balance(self) -> tuple[float, float]:
        """Choose the number of epochs so that learning takes as long as sampling; return both times."""
        self.algorithm.epochs = 1
        sampling, epoch = [], []
        for _ in range(5):
            begin = time.perf_counter()
            samples, _ = self.sampler.collect_batch(0)
            middle = time.perf_counter()
            self.algorithm.optimize_agent(SPEC.size, samples)
            sampling.append(middle - begin)
            epoch.append(time.perf_counter() - middle)
        self.algorithm.epochs = max(1, round(np.median(sampling) / np.median(epoch)))
        return float(np.median(sampling)), float(np.median(epoch)) * self.algorithm.epochs


def against(max_staleness: int | None) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up asynchronous training, and one that does not overlap."""

    @contextmanager
    def make() -> Iterator[Sides]:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with ExitStack() as stack:
            stack.callback(torch.set_num_threads, threads)
            mine, theirs = Training(1, stack), Training(max_staleness, stack)
            sampling_s, learning_s = theirs.balance()
            mine.algorithm.epochs = theirs.algorithm.epochs

            def check() -> None:
                for side, staleness in ((mine, 1), (theirs, 0)):
                    for _ in range(3):
                        side.iterate()
                    assert side.sampler.stats.get("staleness", 0) == staleness

            yield Sides(
                mine.iterate,
                theirs.iterate,
                check,
                f"{theirs.algorithm.epochs} epochs; a batch takes {sampling_s * 1e3:.0f} ms to sample and "
                f"{learning_s * 1e3:.0f} ms to learn from",
            )

    return make


class ImageEnv(gym.Env[Any, Any]):
    """Show the same picture again and again."""

    observation_space = gym.spaces.Box(0, 255, IMAGE, np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self._picture = np.zeros(IMAGE, np.uint8)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Return the picture."""
        super().reset(seed=seed)
        return self._picture, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the picture."""
        return self._picture, 0.0, False, False, {}


def make_random(env_factory: Callable[[], Any], switching: bool) -> BasicSampler:
    """Build a sampler with random actions, whose buffer switches or is copied."""
    from parllel.agents import NumpyHandler, RandomAgent
    from parllel_patterns import allocate_samples, build_cages

    cages = build_cages(env_factory, B, seeds=Seeds(0))
    handler = NumpyHandler(RandomAgent(cages[0].spaces.action, seed=0))
    samples = allocate_samples(cages, SPEC, handler, switching=switching)
    return BasicSampler(SPEC, cages, handler, samples)


def in_place(env_factory: Callable[[], Any]) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up sampling into a buffer that switches, and with batches that are copied."""

    @contextmanager
    def make() -> Iterator[Sides]:
        with ExitStack() as stack:
            sides = [
                AsynchronousSampler(
                    partial(make_random, env_factory, switching),
                    max_staleness=0,
                    start_method=START_METHOD,
                )
                for switching in (True, False)
            ]
            for sampler in sides:
                stack.callback(sampler.close)
            mine, theirs = sides

            def check() -> None:
                (found, _), (expected, _) = mine.collect_batch(0), theirs.collect_batch(0)
                for name in ("observation", "reward"):
                    found_field, field = getattr(found.env, name), getattr(expected.env, name)
                    assert np.array_equal(np.asarray(found_field), np.asarray(field))

            yield Sides(partial(collect, mine), partial(collect, theirs), check)

    return make


def collect(sampler: AsynchronousSampler) -> int:
    """Sample a batch; return its number of steps."""
    sampler.collect_batch(0)
    return SPEC.size


COMPARISONS = [
    Comparison(
        "asynchronous/overlap",
        f"PPO on CartPole T={T} B={B}, sampling the next batch meanwhile, against taking turns with the "
        "sampling process",
        against(0),
        target=1.6,
        aim=1.8,
        needs=("torch",),
    ),
    Comparison(
        "asynchronous/one_process",
        "the same against sampling and learning in one process",
        against(None),
        needs=("torch",),
    ),
    Comparison(
        "asynchronous/small_in_place",
        "random steps of CartPole written into the switching buffer, against copying each batch",
        in_place(partial(gym.make, "CartPole-v1")),
    ),
    Comparison(
        "asynchronous/images_in_place",
        f"the same with observations of {'x'.join(map(str, IMAGE))}",
        in_place(ImageEnv),
    ),
]

test_asynchronous = timed_sides(COMPARISONS)
