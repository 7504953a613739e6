"""parllel's own cages for the test suites: inherit one of these before the suite.

class TestProcessCage(MakesProcessCage, CageContract, PlainFaceContract):
pass
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import SyncVectorEnv

from parllel.buffers.samples import Samples
from parllel.cages.cage import Cage
from parllel.cages.process_cage import ProcessCage
from parllel.cages.stepping.make_envs import VectorEnvFactory
from parllel.cages.synchronized_process_cage import SynchronizedProcessCage
from parllel.cages.vectorized_cage import VectorizedCage
from parllel.testing.cages.cage_hooks import CageHooks, EnvFactories, SingleCageHooks


class MakesCage(SingleCageHooks):
    """Make a `Cage`."""

    def make(
        self,
        env_factories: EnvFactories,
        *,
        seeds: Sequence[Any] = (None,),
        samples: Samples | None = None,
        **options: Any,
    ) -> Cage:
        """Return a cage."""
        # `samples` is dropped: any storage can be bound in this process, at any time.
        return Cage(env_factories[0], seed=seeds[0], **options)


class MakesProcessCage(SingleCageHooks):
    """Make a `ProcessCage` with a start method."""

    # The quickest start, as each test starts its own processes. Only what depends on the start
    # method is repeated with the others.
    start_method = "fork"

    def make(
        self,
        env_factories: EnvFactories,
        *,
        seeds: Sequence[Any] = (None,),
        samples: Samples | None = None,
        **options: Any,
    ) -> ProcessCage:
        """Return a cage."""
        return ProcessCage(
            env_factories[0],
            seed=seeds[0],
            start_method=self.start_method,
            # Above the time in which the contract of faults expects every error (WITHIN_S), so that
            # a death which only the time-out notices fails its test. Below the limit of pytest for
            # a hanging test.
            timeout_s=20,
            # Shared memory can only be inherited. Managed memory is introduced over the pipe when
            # the buffer is bound, and local memory moves to managed memory then.
            buffers=samples if self.storage == "shared" else None,
            **options,
        )


class MakesVectorizedCage(CageHooks):
    """Make a `VectorizedCage`."""

    def make(
        self, env_factories: EnvFactories, *, samples: Samples | None = None, **options: Any
    ) -> VectorizedCage:
        """Return a cage."""
        return VectorizedCage(env_factories, **options)


class MakesSyncVectorCage(CageHooks):
    """Make a `VectorizedCage` of one SyncVectorEnv, which holds the environments of the tests."""

    mode = "NextStep"

    def make(
        self,
        env_factories: EnvFactories,
        *,
        seeds: Sequence[Any] | None = None,
        samples: Samples | None = None,
        **options: Any,
    ) -> VectorizedCage:
        """Return a cage."""
        mode = self.mode

        # Without an argument `seed`: the cage then seeds in the first reset, like the reference of
        # the tests. `n` is the number of the factories, as one process steps all of them.
        def make(n: int) -> Any:
            return SyncVectorEnv(list(env_factories), autoreset_mode=mode)

        return VectorizedCage(VectorEnvFactory(make), n=len(env_factories), seeds=seeds, **options)

    def factories(self, **options: Any) -> list[Any]:
        """Return factories of environments with episodes of uneven lengths."""
        # In this mode gymnasium keeps no copy of a last observation, which a reset then overwrites.
        if self.mode == "SameStep":
            options.pop("reuse", None)
        return super().factories(**options)


class MakesSynchronizedCage(CageHooks):
    """Make a `SynchronizedProcessCage` with settings, a start method and a way to wait."""

    # Shared by all subclasses: replace the dict, never change it. Five environments and two
    # workers, so that the workers' shares differ.
    settings: dict[str, Any] = {"n_workers": 2}
    start_method = "fork"
    # None is the fastest available here. "semaphore", which serves everywhere, runs the same tests
    # over the other kind of wait.
    wait: str | None = None

    def make(
        self, env_factories: EnvFactories, *, samples: Samples | None = None, **options: Any
    ) -> SynchronizedProcessCage:
        """Return a cage."""
        return SynchronizedProcessCage(
            env_factories,
            start_method=self.start_method,
            timeout_s=20.0,
            buffers=samples if self.storage == "shared" else None,
            wait=self.wait,
            **self.settings,
            **options,
        )
