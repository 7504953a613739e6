"""Hooks of the contract of cages of native vector environments."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from parllel.buffers.samples import Samples
from parllel.cages.stepping.make_envs import VectorEnvFactory
from parllel.cages.vectorized_cage import VectorizedCage
from parllel.testing.cages.cage_hooks import FIRST
from parllel.testing.cages.native_reference import masked_reset
from parllel.testing.cages.row_reference import make_samples, seeds_of

SEEDS = (7, 1, 8, 2)
N, T, BATCHES = len(SEEDS), 30, 3


class NativeCageHooks:
    """Hooks and shared helpers of the tests.

    Attributes:
        mode: the autoreset mode of the environment.
        has_state: whether its state can be saved.
        rests: whether waiting environments are frozen, as in a SyncVectorEnv.
        T: rows of a batch; in three batches, each with random actions, episodes have to end.
    """

    mode = "NextStep"
    has_state = False
    rests = False
    T = T

    def make_env(self, n: int) -> Any:
        """Return the environment. Override with an argument `seed` if it is seeded when created."""
        raise NotImplementedError(
            f"{type(self).__name__} must define make_env() to create an environment"
        )

    def begin(self, env: Any, seeds: Sequence[int]) -> Any:
        """Reset an environment as a cage with these seeds does, and return its observations."""
        # The form that the cage tries first (`NativeEnv.reset_all`): a list with a seed for each.
        return env.reset(seed=list(seeds))[0]

    def reset_some(self, env: Any, mask: Any) -> Any:
        """Reset the environments of a mask, and return only their observations."""
        return masked_reset(env, mask)

    def made(self, **options: Any) -> VectorizedCage:
        """Return a cage."""
        # In this process: workers run the same `VectorEnvironments`, one for each group.
        return VectorizedCage(
            VectorEnvFactory(self.make_env), **{"n": N, "seeds": SEEDS, **options}
        )

    def directly(self) -> tuple[Any, Any]:
        """Return an environment without a cage, and its first observations."""
        # Whole words for a reset, and 31 bits of them for environments that are seeded when made,
        # as `NativeEnv` passes them.
        words = [seeds_of(seed)[0] for seed in SEEDS]
        factory = VectorEnvFactory(self.make_env)
        env = factory.make(N, [word & (2**31 - 1) for word in words])
        # Copied, as environments may return the same array each time.
        return env, copy.deepcopy(self.begin(env, words))

    def bound(self, **options: Any) -> tuple[VectorizedCage, Samples]:
        """Return a cage, and samples with a foreign column on either side of its own."""
        cage = self.made(**options)
        # Local memory suffices in this process. Infos differ between libraries: none are stored.
        samples = make_samples(_OneSpace(cage.spaces), self.T, N + 2, info=False)
        cage.set_samples_buffer(samples, slice(FIRST, FIRST + N))
        return cage, samples

    def observations(self, samples: Samples, t: int) -> Any:
        """Return the observations of a row of the cage's columns."""
        return np.asarray(samples.env.observation[t])[FIRST : FIRST + N].tolist()


class _OneSpace:
    """The spaces of one environment, as `make_samples` asks an environment for them."""

    def __init__(self, spaces: Any) -> None:
        self.observation_space, self.action_space = spaces.observation, spaces.action
