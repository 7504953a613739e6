"""The seeds of an experiment's episodes; the i-th episodes of all operators share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from parllel.seeding import Seeds


@dataclass(frozen=True)
class ProceduralSeeds:
    """Another seed for each episode, derived from `entropy`: whether operators generalise."""

    entropy: int

    def __post_init__(self) -> None:
        _check_seed("procedural seeds", self.entropy)

    def seeds(self, episodes: int) -> list[int]:
        """Return the seeds of the first episodes; those of fewer episodes are the same."""
        return _drawn(self.entropy, "episodes", episodes)


@dataclass(frozen=True)
class FixedSeeds:
    """The same seed for the environment of each episode, in which agents draw anew: how do they vary?"""

    seed: int

    def __post_init__(self) -> None:
        _check_seed("fixed seed", self.seed)

    def seeds(self, episodes: int) -> list[int]:
        """Return the seed of each episode."""
        return [self.seed] * episodes


SeedsLike: TypeAlias = int | Sequence[int] | ProceduralSeeds | FixedSeeds


def seeds_of(seeds: SeedsLike, episodes: int | None) -> list[int]:
    """Return the seed of each episode.

    Args:
        seeds: an int is `ProceduralSeeds`; of a sequence the first are taken.
        episodes: default as many as the sequence has.

    Raises:
        TypeError, ValueError: for seeds that are none, or too few, or no number of episodes.
    """
    if isinstance(seeds, (int, np.integer)) and not isinstance(seeds, bool):
        seeds = ProceduralSeeds(int(seeds))
    if episodes is not None and (
        isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1
    ):
        raise ValueError(f"episodes: expected an int of at least 1, got {episodes!r}")
    if isinstance(seeds, (ProceduralSeeds, FixedSeeds)):
        if episodes is None:
            raise ValueError(
                "episodes: expected how many, as seeds without a list say nothing of it"
            )
        return seeds.seeds(episodes)
    if isinstance(seeds, (str, bytes)) or not isinstance(seeds, Sequence):
        raise TypeError(
            "seeds: expected an int, a list of ints, ProceduralSeeds or FixedSeeds, such as seeds=0 with "
            f"episodes=50, or range(50); got {seeds!r}"
        )
    if not len(seeds):
        raise ValueError("seeds: expected at least one, got none")
    for seed in seeds:
        _check_seed("seeds", seed)
    n = len(seeds) if episodes is None else episodes
    if n > len(seeds):
        raise ValueError(f"episodes: expected at most {len(seeds)}, as there are seeds, got {n}")
    return [int(seed) for seed in seeds[:n]]


def agent_seeds_of(seeds: SeedsLike, episodes: int) -> list[int | None]:
    """Return from which seed the agents' follow in each episode; None for the environment's."""
    if not isinstance(seeds, FixedSeeds):
        return [None] * episodes
    return [*_drawn(seeds.seed, "agents", episodes)]


def seeds_as_json(seeds: SeedsLike) -> Any:
    """Return the seeds as an experiment's file has them."""
    if isinstance(seeds, ProceduralSeeds):
        return {"procedural": seeds.entropy}
    if isinstance(seeds, FixedSeeds):
        return {"fixed": seeds.seed}
    return int(seeds) if isinstance(seeds, (int, np.integer)) else [int(seed) for seed in seeds]


def seeds_from_json(values: Any) -> Any:
    """Return the seeds that an experiment's file names; what has another form is returned as it is."""
    if isinstance(values, Mapping):
        kinds = {"procedural": ProceduralSeeds, "fixed": FixedSeeds}
        if len(values) != 1 or not kinds.keys() >= values.keys():
            raise ValueError(
                f"seeds: expected an int, a list, or a table with procedural or fixed, got {dict(values)}"
            )
        ((kind, seed),) = values.items()
        return kinds[kind](seed)
    return values


def _drawn(entropy: int, name: str, n: int) -> list[int]:
    # Of one stream, as names for very many episodes take seconds. Raw words, which numpy keeps the same in
    # all versions; their upper halves, as many environments take no larger seeds.
    words = np.random.PCG64(Seeds(entropy).sequence(name)).random_raw(n)
    return [int(word) >> 32 for word in words]


def _check_seed(what: str, seed: object) -> None:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"{what}: expected an int of at least 0, got {seed!r}")
