"""How much faster is a batch when policies act in the workers, without waiting for rows?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.samplers import BasicSampler, Plan, RolloutSampler, Sampler
from parllel.seeding import Seeds
from parllel.types import BatchSpec

T, B = 64, 16
HIDDEN = (64, 64)
PLAN = Plan(n_workers=1, n_main=B // 2)


def make_sampler(cls: type[Any], *, small: bool, compute_in_workers: bool) -> Sampler:
    """Build a sampler of CartPole over one worker and this process.

    small: compute the policy in compiled code, else in PyTorch.
    """
    from parllel.torch import (
        CategoricalHead,
        CategoricalPgAgent,
        PgModel,
        SmallPolicyHandler,
        TorchHandler,
    )
    from parllel_patterns import allocate_samples, build_cages

    spec = BatchSpec(T, B)
    cages: Any = build_cages(partial(gym.make, "CartPole-v1"), B, seeds=Seeds(0), parallel=PLAN)
    agent = CategoricalPgAgent(PgModel((4,), CategoricalHead(2), HIDDEN, seed=0), 2, seed=0)
    handler: Any = (SmallPolicyHandler if small else TorchHandler)(agent)
    samples = allocate_samples(cages, spec, handler, noise=compute_in_workers)
    if compute_in_workers:
        cages[0].set_policy(handler.worker_policy())
    sampler: Sampler = cls(spec, cages, handler, samples)
    return sampler


def against_basic(*, small: bool) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up rollouts of the small policy, and BasicSampler with a policy of either kind."""

    @contextmanager
    def make() -> Iterator[Sides]:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # more of them only add noise to matrices of this size
        with ExitStack() as stack:
            stack.callback(torch.set_num_threads, threads)
            mine = make_sampler(RolloutSampler, small=True, compute_in_workers=True)
            stack.callback(mine.close)
            theirs = make_sampler(BasicSampler, small=small, compute_in_workers=False)
            stack.callback(theirs.close)

            def check() -> None:
                (found, _), (expected, _) = mine.collect_batch(0), theirs.collect_batch(0)
                # From the first choice on that rounding decides, episodes part.
                same = np.asarray(found.agent.action[:8]) == np.asarray(expected.agent.action[:8])
                assert np.mean(same) > 0.95

            yield Sides(
                partial(collect, mine),
                partial(collect, theirs),
                check,
                f"two layers of {HIDDEN[0]} units, 1 worker and main",
            )

    return make


def collect(sampler: Sampler) -> int:
    """Sample a batch; return its number of steps."""
    sampler.collect_batch(0)
    return T * B


COMPARISONS = [
    Comparison(
        "worker_policy/small",
        f"batches by RolloutSampler, CartPole T={T} B={B}, against BasicSampler, small policy in both",
        against_basic(small=True),
        needs=("torch",),
    ),
    Comparison(
        "worker_policy/torch",
        "the same against BasicSampler with TorchHandler",
        against_basic(small=False),
        needs=("torch",),
    ),
]

test_worker_policy = timed_sides(COMPARISONS)
