"""What makes one native vector environment, in place of a list of functions that make environments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from parllel.cages.argument_checks import check_factory
from parllel.cages.stepping.make_envs import call_factory
from parllel.envs.single_env_adapter import SingleEnvAdapter

BITS_31 = 2**31 - 1  # what native environments take of a seed


class VectorEnvFactory:
    """One native vector environment of n, such as gymnasium's CartPoleVectorEnv, EnvPool, AtariVectorEnv.

    A cage that is given one instead of a list of functions has its `n` environments stepped by one call, and
    copies whole rows: `VectorizedCage(VectorEnvFactory(make), n=16)`. Called without arguments it makes a
    single environment, and so takes the place of the function that a cage of one environment is given.

    Args:
        make: called with the number of environments, returns a `gymnasium.vector.VectorEnv`, or what behaves
            as one. If it has an argument named `seed`, it is given a list of one int of 31 bits for each
            environment: for environments that take their seeds when they are made, as EnvPool does.

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

        seeds: of 31 bits, one for each environment; used if `takes_seed`, and drawn if there are none.
        """
        if not self.takes_seed:
            return call_factory(partial(self._make, n))
        if seeds is None:
            # EnvPool takes no None, and would make all of them alike without an argument.
            seeds = (np.random.SeedSequence().generate_state(n) & BITS_31).tolist()
        return call_factory(partial(self._make, n, seed=list(seeds)))

    def __call__(self) -> SingleEnvAdapter:
        """Return a vector environment of one as a plain environment, where those are needed one by one."""
        return SingleEnvAdapter(self.make(1), self._make_one if self.takes_seed else None)

    def _make_one(self, seed: int) -> Any:
        return self.make(1, [seed & BITS_31])

    def __repr__(self) -> str:
        return f"VectorEnvFactory({self._make!r})"
