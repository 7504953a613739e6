"""How much faster is the compiled advantage estimate than the usual numpy loop over T?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.transforms import estimate_advantage

T, B = 128, 512
DISCOUNT, GAE_LAMBDA = 0.99, 0.95


def numpy_loop(
    reward: NDArray[Any],
    value: NDArray[Any],
    done: NDArray[Any],
    bootstrap_value: NDArray[Any],
    out_advantage: NDArray[Any],
) -> None:
    """Estimate as single-file PPO implementations do: a row at a time, one kind of end."""
    trace = np.zeros_like(bootstrap_value)
    for t in reversed(range(len(reward))):
        following = bootstrap_value if t == len(reward) - 1 else value[t + 1]
        goes_on = 1.0 - done[t]
        delta = reward[t] + DISCOUNT * following * goes_on - value[t]
        out_advantage[t] = trace = delta + DISCOUNT * GAE_LAMBDA * goes_on * trace


@contextmanager
def gae() -> Iterator[Sides]:
    """Estimate the advantages of a batch in which one step in fifty ends an episode.

    Nothing is truncated, which the usual loop cannot tell from termination.
    """
    generator = np.random.default_rng(0)
    reward, value, final_value = (
        generator.normal(size=(T, B)).astype(np.float32) for _ in range(3)
    )
    bootstrap_value = generator.normal(size=B).astype(np.float32)
    terminated = generator.random((T, B)) < 0.02
    truncated = np.zeros((T, B), bool)
    done = terminated.astype(np.float32)
    mine, theirs = np.empty((T, B), np.float32), np.empty((T, B), np.float32)

    def compiled() -> int:
        estimate_advantage(
            reward,
            value,
            terminated,
            truncated,
            final_value,
            bootstrap_value,
            DISCOUNT,
            GAE_LAMBDA,
            mine,
        )
        return 1

    def looped() -> int:
        numpy_loop(reward, value, done, bootstrap_value, theirs)
        return 1

    def check() -> None:
        compiled()
        looped()
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)

    yield Sides(compiled, looped, check)


COMPARISONS = [
    Comparison("gae", f"GAE at T={T}, B={B}, against a numpy loop over T", gae, target=4.0, aim=8.0)
]

test_gae = timed_sides(COMPARISONS)
