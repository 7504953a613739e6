"""What is the cost of moving from batch to batch in a buffer that holds many, as replays do?

One side samples into a buffer of 50 batches, the other into a buffer of one. Both take the same steps; short
batches make the work between batches visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.agents import Agent, NumpyHandler
from parllel.cages import CageInterface, ProcessCage, SynchronizedProcessCage, VectorizedCage
from parllel.samplers import BasicSampler
from parllel.types import BatchSpec

B, N_BATCHES = 16, 50
PROCESSES = 2  # of a ProcessCage each
ROWS = 64  # that one call of a side fills, in batches of T
make_env = partial(gym.make, "CartPole-v1")
Cages = list[CageInterface]


class DrawnActions(Agent):
    """Give actions that were drawn beforehand, row by row."""

    def __init__(self, B: int) -> None:
        self.actions: NDArray[Any] = np.random.default_rng(0).integers(0, 2, (ROWS, B))
        self.row = -1

    def step(self, observation: Any, **inputs: Any) -> tuple[NDArray[Any], None]:
        """Return the next row of actions."""
        self.row = (self.row + 1) % ROWS
        return self.actions[self.row, : len(observation)], None


def vectorized() -> Cages:
    """Make one cage in this process."""
    return [VectorizedCage([make_env] * B, seeds=range(B))]


def processes() -> Cages:
    """Make cages of one environment each."""
    return [ProcessCage(make_env, seed=i, index=i) for i in range(PROCESSES)]


def synchronized(*, participate: bool) -> Cages:
    """Make one cage over a worker, and over this process if it takes part."""
    cage = SynchronizedProcessCage(
        [make_env] * B, n_workers=1, seeds=range(B), participate=participate
    )
    return [cage]


KINDS: dict[str, tuple[str, Callable[[], Cages]]] = {
    "vectorized": (f"VectorizedCage of {B}", vectorized),
    "workers": (
        f"SynchronizedProcessCage of {B}, 1 worker",
        partial(synchronized, participate=False),
    ),
    "main": (
        f"SynchronizedProcessCage of {B}, 1 worker and main",
        partial(synchronized, participate=True),
    ),
    "process": (f"{PROCESSES} ProcessCages", processes),
}


def make_sampler(make_cages: Callable[[], Cages], T: int, n_batches: int) -> BasicSampler:
    """Build a sampler of CartPole whose buffer holds `n_batches`."""
    from parllel_patterns import allocate_samples

    cages = make_cages()
    spec = BatchSpec(T, sum(cage.n for cage in cages))
    handler = NumpyHandler(DrawnActions(spec.B))
    samples = allocate_samples(cages, spec, handler, n_batches=n_batches)
    return BasicSampler(spec, cages, handler, samples)


@contextmanager
def many_against_one(make_cages: Callable[[], Cages], T: int) -> Iterator[Sides]:
    """Sample into a buffer of many batches, and into one of a single batch."""
    with ExitStack() as stack:
        many, one = (stack.enter_context(make_sampler(make_cages, T, n)) for n in (N_BATCHES, 1))

        def check() -> None:
            for _ in range(2 * N_BATCHES + 1):  # round the buffer twice, and on to its first place
                (found, _), (expected, _) = many.collect_batch(0), one.collect_batch(0)
                for name in ("observation", "reward", "done"):
                    np.testing.assert_array_equal(
                        np.asarray(getattr(found.env, name)),
                        np.asarray(getattr(expected.env, name)),
                    )

        check()  # before either has been timed, when both have done the same
        yield Sides(
            partial(collect, many), partial(collect, one), lambda: None, f"{N_BATCHES} batches"
        )


def collect(sampler: BasicSampler) -> int:
    """Sample some batches; return their number of steps."""
    T, B = sampler.batch_spec.T, sampler.batch_spec.B
    for _ in range(ROWS // T):
        sampler.collect_batch(0)
    return ROWS * B


COMPARISONS = [
    Comparison(
        f"absolute_rows/{kind}-{T}",
        f"{what}, CartPole, T={T}: a buffer of {N_BATCHES} batches against one",
        partial(many_against_one, make_cages, T),
        target=0.95,
        aim=1.0,
        quick=kind == "vectorized",
    )
    for kind, (what, make_cages) in KINDS.items()
    for T in (1, 8)
]

test_absolute_rows = timed_sides(COMPARISONS)
