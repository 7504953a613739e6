"""How many steps per second come from workers in processes, beside threads and Ray on the same machine?

Two workers of eight environments each, with a policy of 64 units in PyTorch. While one side is measured, the
other's workers wait for room in their buffer; what has filled it by then is a tenth of a turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from benchmarks.peers.workload import Workload

SETTINGS = {"n_workers": 2, "policy": "torch", "queue": 9, "capacity": 2}
BATCHES = 30  # of a turn


@contextmanager
def beside(env_id: str, other: str) -> Iterator[Sides]:
    """Fetch batches from workers in processes, and from others."""
    from benchmarks.rollouts.sides.parllel_side import ParllelSide

    workload = Workload(env_id)
    with ExitStack() as stack:
        sides: list[Any] = [
            stack.enter_context(closing(ParllelSide(workload, {**SETTINGS, "where": where})))
            for where in ("processes", other)
        ]

        def turn(side: Any) -> int:
            return sum(side.run() for _ in range(BATCHES))

        def check() -> None:
            for side in sides:
                assert side.first()["steps"] == workload.B * workload.T

        check()
        yield Sides(partial(turn, sides[0]), partial(turn, sides[1]), check)


COMPARISONS = [
    Comparison(
        f"local_rollouts/{name}-{other}",
        f"steps per second of two workers in processes, {env_id}: against {what}",
        partial(beside, env_id, other),
        target=target,
        quick=False,
        needs=("torch", *needs),
    )
    for name, env_id, more in (
        ("cartpole", "CartPole-v1", ()),
        ("half-cheetah", "HalfCheetah-v5", ("mujoco",)),
    )
    for other, what, target, needs in (
        ("threads", "threads", 1.3, more),
        ("ray", "Ray on this machine", 1.0, (*more, "ray")),
    )
]

test_local_rollouts = timed_sides(COMPARISONS)
