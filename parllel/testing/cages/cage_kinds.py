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
        return Cage(env_factories[0], seed=seeds[0], **options)


class MakesProcessCage(SingleCageHooks):
    """Make a `ProcessCage` with a start method."""

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
            timeout_s=20,
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

    settings: dict[str, Any] = {"n_workers": 2}
    start_method = "fork"
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
