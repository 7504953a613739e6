"""How much faster are the steps of a small policy without PyTorch?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from benchmarks.samples import make_policy_samples
from parllel.buffers import Samples

T, FEATURES, ACTIONS = 64, 4, 2
HIDDEN = (64, 64)


def acting(B: int, *, whole_batch: bool) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up both handlers for B environments, each with an agent of the same seed.

    whole_batch: time what comes once per batch too: noise, the copy of the parameters, and the
    values after the last row.
    """

    @contextmanager
    def make() -> Iterator[Sides]:
        import torch

        from parllel.torch import (
            CategoricalHead,
            CategoricalPgAgent,
            PgModel,
            SmallPolicyHandler,
            TorchHandler,
        )

        def agent() -> CategoricalPgAgent:
            return CategoricalPgAgent(
                PgModel((FEATURES,), CategoricalHead(ACTIONS), HIDDEN, seed=0), ACTIONS, seed=0
            )

        def work_of(handler: TorchHandler, samples: Samples) -> Callable[[], int]:
            handler.bind(samples)
            handler.start_batch()
            columns = slice(0, B)

            def work() -> int:
                if whole_batch:
                    handler.start_batch()
                for t in range(T):
                    handler.step(t, columns)
                if whole_batch:
                    handler.bootstrap_value(T, columns)
                return T

            return work

        mine, theirs = make_policy_samples(T, B, FEATURES), make_policy_samples(T, B, FEATURES)
        ours, torchs = (
            work_of(SmallPolicyHandler(agent()), mine),
            work_of(TorchHandler(agent()), theirs),
        )

        def check() -> None:
            ours()
            torchs()
            # A choice may differ where two sums are equal up to rounding.
            assert np.mean(np.asarray(mine.agent.action) != np.asarray(theirs.agent.action)) < 1e-3
            info, expected = mine.agent.agent_info, theirs.agent.agent_info
            np.testing.assert_allclose(info.value, expected.value, rtol=1e-5, atol=1e-6)

        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # more of them only add noise to matrices of this size
        try:
            yield Sides(ours, torchs, check, f"two layers of {HIDDEN[0]} units, one thread")
        finally:
            torch.set_num_threads(threads)

    return make


COMPARISONS = [
    Comparison(
        "small_policy/B=16",
        "SmallPolicyHandler.step at B=16, against TorchHandler.step",
        acting(16, whole_batch=False),
        target=1.3,
        aim=1.8,
        needs=("torch",),
    ),
    Comparison(
        "small_policy/batch",
        f"the same for whole batches of T={T}, noise and parameters included",
        acting(16, whole_batch=True),
        target=1.3,
        aim=1.8,
        needs=("torch",),
    ),
    Comparison(
        "small_policy/B=128",
        "SmallPolicyHandler.step at B=128, against TorchHandler.step",
        acting(128, whole_batch=False),
        target=1.0,
        aim=1.5,
        needs=("torch",),
    ),
]

test_small_policy = timed_sides(COMPARISONS)
