"""Seeds of an experiment's episodes. The i-th episodes of all operators share a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from parllel.seeding import Seeds


@dataclass(frozen=True)
class ProceduralSeeds:
    """A different seed for each episode, derived from `entropy`. Measures how operators generalise."""

    entropy: int

    def __post_init__(self) -> None:
        _check_seed("procedural seeds", self.entropy)

    def seeds(self, episodes: int) -> list[int]:
        """Return the seeds of the first episodes. They do not depend on the number of episodes."""
        return _drawn(self.entropy, "episodes", episodes)


@dataclass(frozen=True)
class FixedSeeds:
    """The same environment seed for each episode, with different agent seeds. Measures how agents vary."""

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
        seeds: an int, which means `ProceduralSeeds`, or a sequence, whose first seeds are used.
        episodes: number of episodes. Default: the length of the sequence.

    Raises:
        TypeError, ValueError: for invalid or too few seeds, or an invalid number of episodes.
    """
    if isinstance(seeds, (int, np.integer)) and not isinstance(seeds, bool):
        seeds = ProceduralSeeds(int(seeds))
    if episodes is not None and (
        isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1
    ):
        raise ValueError(f"episodes: expected an int of at least 1, got {episodes!r}")
    if isinstance(seeds, (ProceduralSeeds, FixedSeeds)):
        if episodes is None:
            raise ValueError("episodes: expected a number, because seeds is not a list; got None")
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
        raise ValueError(f"episodes: expected at most {len(seeds)}, the number of seeds, got {n}")
    return [int(seed) for seed in seeds[:n]]


def agent_seeds_of(seeds: SeedsLike, episodes: int) -> list[int | None]:
    """Return the seed for each episode from which agents' seeds are derived.

    None means that they are derived from the environment's seed.
    """
    if not isinstance(seeds, FixedSeeds):
        return [None] * episodes
    return [*_drawn(seeds.seed, "agents", episodes)]


def seeds_as_json(seeds: SeedsLike) -> Any:
    """Return the seeds in the format of an experiment file."""
    if isinstance(seeds, ProceduralSeeds):
        return {"procedural": seeds.entropy}
    if isinstance(seeds, FixedSeeds):
        return {"fixed": seeds.seed}
    return int(seeds) if isinstance(seeds, (int, np.integer)) else [int(seed) for seed in seeds]


def seeds_from_json(values: Any) -> Any:
    """Return the seeds of an experiment file. A value other than a table is returned unchanged."""
    if isinstance(values, Mapping):
        kinds = {"procedural": ProceduralSeeds, "fixed": FixedSeeds}
        if len(values) != 1 or not kinds.keys() >= values.keys():
            raise ValueError(
                "seeds: expected an int, a list, or a table with the key procedural or fixed, got "
                f"{dict(values)}"
            )
        ((kind, seed),) = values.items()
        return kinds[kind](seed)
    return values


def _drawn(entropy: int, name: str, n: int) -> list[int]:
    # From one stream: named sequences for very many episodes would take seconds. Raw words, which are the
    # same in all versions of NumPy; only their upper halves, since many environments accept no larger seeds.
    words = np.random.PCG64(Seeds(entropy).sequence(name)).random_raw(n)
    return [int(word) >> 32 for word in words]


def _check_seed(what: str, seed: object) -> None:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"{what}: expected an int of at least 0, got {seed!r}")
