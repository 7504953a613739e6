"""What makes one native vector environment, in place of a list of functions that make environments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from parllel.cages.argument_checks import check_factory


class VectorEnvFactory:
    """One native vector environment of n, such as gymnasium's CartPoleVectorEnv, EnvPool, AtariVectorEnv.

    A cage that is given one instead of a list of functions has its `n` environments stepped by one call, and
    copies whole rows: `VectorizedCage(VectorEnvFactory(make), n=16)`.

    Args:
        make: called with the number of environments, returns a `gymnasium.vector.VectorEnv`, or what behaves
            as one. If it has an argument named `seed`, it is given a list of one int of 31 bits for each
            environment, or None: for environments that take their seeds when they are made, as EnvPool does.

    Example:
        >>> from functools import partial
        >>> import gymnasium as gym
        >>> VectorEnvFactory(partial(gym.make_vec, "CartPole-v1", vectorization_mode="sync")).takes_seed
        False
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        check_factory(make, "VectorEnvFactory: make")
        self._make = make

    @property
    def takes_seed(self) -> bool:
        """Whether the environments get their seeds when they are made, and not by their first reset."""
        try:
            parameters = inspect.signature(self._make).parameters
        except (TypeError, ValueError):  # of a class that is not written in Python
            return False
        # Not any keyword: gymnasium.make_vec takes all, and hands them to the environment.
        return "seed" in parameters

    def make(self, n: int, seeds: Sequence[int] | None = None) -> Any:
        """Return a vector environment of n.

        seeds: of 31 bits, one for each environment; used if `takes_seed`.
        """
        if not self.takes_seed:
            return self._make(n)
        return self._make(n, seed=None if seeds is None else list(seeds))

    def __repr__(self) -> str:
        return f"VectorEnvFactory({self._make!r})"
