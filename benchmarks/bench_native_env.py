"""What is the overhead of a cage over a native vector environment that steps all environments in one call?

The other side is EnvPool's own loop, which writes the same rows to arrays, with the same seeds and actions:
what has ended is reset before the next row, and last observations are kept. Ours is a sampler with an agent
that hands out drawn actions, and keeps trajectories. Both have one thread, so that neither waits for a core.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from benchmarks.peers.workload import Workload

B = 128
SETTINGS = {"num_threads": 1, "own": True}
# With fewer rows of pictures, of which one is 3.6 MB.
ROWS = {"CartPole-v1": 64, "Pendulum-v1": 64, "ALE/Pong-v5": 4}


@contextmanager
def against_own_loop(env_id: str, *, gaps: bool = False) -> Iterator[Sides]:
    """Sample the same episodes in a cage and by EnvPool's loop.

    gaps: whether the loop lets rows go by in which environments are only reset, which then do not count.
    """
    from benchmarks.peers.sides.envpool_side import EnvPoolCageSide, EnvPoolRowsSide, EnvPoolSide

    workload = Workload(env_id, B=B, T=ROWS[env_id])
    ours = EnvPoolCageSide(workload, SETTINGS)
    theirs = (EnvPoolSide if gaps else EnvPoolRowsSide)(workload, SETTINGS)
    first = ours.first(), theirs.first()

    def check() -> None:
        # Episodes begin elsewhere where rows go by.
        for key in () if gaps else first[0]:
            assert first[0][key] == pytest.approx(first[1][key], rel=1e-4, abs=1e-2)

    try:
        yield Sides(ours.run, theirs.run, check)
    finally:
        ours.close()
        theirs.close()


COMPARISONS = [
    *(
        Comparison(
            f"native_env/{env_id}",
            f"EnvPool's {env_id} in a VectorizedCage of {B}, against EnvPool's own loop into such a buffer",
            partial(against_own_loop, env_id),
            target=0.95,
            aim=1.0,
            quick=env_id == "CartPole-v1",
            needs=("envpool", *(("ale_py",) if env_id.startswith("ALE") else ())),
        )
        for env_id in ROWS
    ),
    Comparison(
        "native_env/gaps",
        "the same of CartPole-v1, against a loop that leaves out the rows after ends, which only reset",
        partial(against_own_loop, "CartPole-v1", gaps=True),
        needs=("envpool",),
    ),
]

test_native_env = timed_sides(COMPARISONS)
