"""Ours with compiled environments: the same episodes, a compiled call for each process and batch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.sides.parllel_side import DrawnAgent, ParllelSide, build_cage
from benchmarks.peers.workload import Workload
from parllel.agents import Handler, NumpyHandler
from parllel.buffers import Samples
from parllel.cages import CageInterface, SynchronizedProcessCage
from parllel.samplers import AlternatingSampler, BasicSampler, RolloutSampler
from parllel.types import BatchSpec, CompiledActs

# Compiled environments that equal those of the workloads, bit for bit.
COUNTERPARTS = {
    "CartPole-v1": "parllel.envs.compiled:parllel/CartPole-v1",
    "Pendulum-v1": "parllel.envs.compiled:parllel/Pendulum-v1",
    "MiniGrid-DoorKey-8x8-v0": "parllel.envs.compiled:parllel/DoorKey-8x8-v0",
}


class DrawnHandler(NumpyHandler):
    """Hand out actions that were drawn beforehand, a batch at a time."""

    def compiled_acts(self) -> CompiledActs:
        """Write the actions of the batch."""
        assert self.samples is not None
        np.copyto(np.asarray(self.samples.agent.action), self._noise)
        return CompiledActs("given")


class DrawnPolicy:
    """The same in a process of the environments."""

    def __init__(self, actions: NDArray[Any]) -> None:
        self._actions = actions

    def bind(self, samples: Samples, columns: slice) -> None:
        """Keep the batch and the columns."""
        self._rows = np.asarray(samples.agent.action)[:, columns]
        self._own = self._actions[:, columns]

    def start_batch(self) -> None:
        """Write the actions of the batch."""
        np.copyto(self._rows, self._own)

    def step(self, t: int) -> None:
        """Do nothing: the actions are there."""

    def compiled_acts(self) -> CompiledActs:
        """Return that the actions are in the batch."""
        return CompiledActs("given")


class CompiledSide(ParllelSide):
    """A BasicSampler in this process, or a RolloutSampler over workers."""

    def build_cage(self, workload: Workload, settings: dict[str, Any]) -> CageInterface:
        """Return the cage of the compiled environments."""
        cage = build_cage(replace(workload, env_id=COUNTERPARTS[workload.env_id]), settings)
        if isinstance(cage, SynchronizedProcessCage):
            cage.set_policy(partial(DrawnPolicy, workload.actions()))
        return cage

    def build_handler(self, workload: Workload, settings: dict[str, Any]) -> Handler:
        """Return a handler that writes the actions of a batch at once."""
        return DrawnHandler(DrawnAgent(workload.actions()))

    def build_sampler(
        self, spec: BatchSpec, settings: dict[str, Any]
    ) -> BasicSampler | AlternatingSampler | RolloutSampler:
        """Return a sampler that fills whole batches."""
        if not self.cage.has_policy:
            return super().build_sampler(spec, settings)
        return RolloutSampler(spec, [self.cage], self.handler, self.samples)
