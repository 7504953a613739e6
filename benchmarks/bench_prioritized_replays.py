"""What does drawing by priority cost, and new priorities, beside the replays of other libraries?

As in `bench_replays`: a million transitions, batches of 256, CPU time of all threads. The priorities are
those after some thousand updates with errors of very different sizes. Stable-Baselines3 has no such replay.
That of TorchRL 0.14.1 needs its compiled part, which does not load with torch 2.12 and 2.13.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench_replays import (
    BATCH,
    SCENES,
    SIZE,
    Cpprb,
    Ours,
    Scene,
    Side,
    check,
    filled,
)
from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.replays import PrioritizedReplay

ALPHA, BETA, N_UPDATES = 0.6, 0.4, 2000
Errors = NDArray[np.float32]


class PrioritizedSide(Side, Protocol):
    """A replay with priorities."""

    def update(self, errors: Errors) -> None:
        """Set the priorities of what was drawn last."""


class OurPriorities(Ours):
    """A PrioritizedReplay."""

    def __init__(self, scene: Scene, size: int) -> None:
        super().__init__(scene, size)
        self.replay = PrioritizedReplay(
            self.samples, batch_size=BATCH, discount=0.99, seed=0, alpha=ALPHA, beta=BETA
        )

    def update(self, errors: Errors) -> None:
        """Set the priorities of what was drawn last."""
        self.replay.update_priorities(errors)


class CpprbPriorities(Cpprb):
    """Its PrioritizedReplayBuffer."""

    kind = "PrioritizedReplayBuffer"

    def __init__(self, scene: Scene, size: int) -> None:
        super().__init__(scene, size, alpha=ALPHA)
        self._indices: Any = None

    def draw(self) -> tuple[Any, Any, Any]:
        """Draw into new arrays."""
        drawn = self._buffer.sample(BATCH, beta=BETA)
        self._indices = drawn["indexes"]
        return drawn["obs"], drawn["rew"][:, 0], drawn["next_obs"]

    def update(self, errors: Errors) -> None:
        """Set the priorities of what was drawn last."""
        self._buffer.update_priorities(self._indices, errors)


def errors_of(rng: np.random.Generator) -> list[Errors]:
    """Return errors of very different sizes, for many updates."""
    return list(rng.lognormal(0, 1, (64, BATCH)).astype(np.float32))


def trained(make: Callable[[Scene, int], Any], scene: Scene, size: int) -> Any:
    """Return a full replay whose priorities differ."""
    side: Any = filled(make, scene, size)
    errors = errors_of(np.random.default_rng(1))
    for i in range(N_UPDATES):
        side.draw()
        side.update(errors[i % len(errors)])
    return side


@contextmanager
def drawing(make: Callable[[Scene, int], Any], scene: Scene, size: int) -> Iterator[Sides]:
    """Draw a batch by priority."""
    sides: list[Any] = [trained(one, scene, size) for one in (OurPriorities, make)]

    def draw(side: PrioritizedSide) -> int:
        side.draw()
        return BATCH

    works = [partial(draw, side) for side in sides]
    yield Sides(works[0], works[1], partial(check, sides), clock=time.process_time)


@contextmanager
def updating(make: Callable[[Scene, int], Any], scene: Scene, size: int) -> Iterator[Sides]:
    """Set the priorities of one batch again and again."""
    sides: list[Any] = [trained(one, scene, size) for one in (OurPriorities, make)]
    errors = errors_of(np.random.default_rng(2))
    counts = [0, 0]

    def update(which: int) -> int:
        counts[which] += 1
        sides[which].update(errors[counts[which] % len(errors)])
        return BATCH

    works = [partial(update, which) for which in range(2)]
    yield Sides(works[0], works[1], partial(check, sides), clock=time.process_time)


PEERS: dict[str, tuple[str, Callable[[Scene, int], Any], str]] = {
    "cpprb": ("cpprb's PrioritizedReplayBuffer", CpprbPriorities, "cpprb"),
}

COMPARISONS = [
    Comparison(
        f"replays/{what}-{scene}-{peer}",
        f"{words} of {SCENES[scene].what}, {SIZE:,} stored: PrioritizedReplay against {name}",
        partial(work, make, SCENES[scene], SIZE),
        target=target,
        quick=False,
        needs=(module,),
    )
    for what, words, work, target in (
        ("draw-by-priority", f"draw {BATCH} transitions by priority", drawing, 2.1),
        ("priorities", f"set the priorities of {BATCH} transitions", updating, None),
    )
    for scene in (SCENES if what == "draw-by-priority" else ("cartpole",))
    for peer, (name, make, module) in PEERS.items()
]

test_prioritized_replays = timed_sides(COMPARISONS)
