"""Ours, as users run it: a sampler with seeds, final observations, trajectories and checks."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.side import Side
from benchmarks.peers.workload import Workload
from parllel import BatchSpec
from parllel.agents import Agent, Handler, NumpyHandler
from parllel.cages import CageInterface, SynchronizedProcessCage, VectorizedCage
from parllel.samplers import AlternatingSampler, BasicSampler, RolloutSampler
from parllel.types import Tree
from parllel_patterns import allocate_samples


class DrawnAgent(Agent):
    """Hand out actions [T, B, ...] that were drawn beforehand; every batch repeats them."""

    def __init__(self, actions: NDArray[Any]) -> None:
        self._actions = actions

    def step(
        self, observation: Tree, *, env_indices: Any = slice(None), noise: Tree = None
    ) -> tuple[Tree, None]:
        """Return the row of actions that the handler holds ready."""
        return (self._actions[0, env_indices] if noise is None else noise), None

    def draw_noise(self, T: int, B: int, *, seed: int | None = None) -> Tree:
        """Return the actions of a batch."""
        return self._actions


def build_cage(workload: Workload, settings: dict[str, Any]) -> CageInterface:
    """Make the cage that `settings` name: `cage`, and the arguments of a SynchronizedProcessCage."""
    arguments = dict(settings)
    for not_of_the_cage in ("policy", "threads"):
        arguments.pop(not_of_the_cage, None)
    kind = arguments.pop("cage")
    factories: list[Any] = [workload.factory()] * workload.B
    seeds = workload.seed_sequences()
    if kind == "vectorized":
        return VectorizedCage(factories, seeds=seeds, **arguments)
    if kind == "synchronized":
        return SynchronizedProcessCage(factories, seeds=seeds, **arguments)
    raise ValueError(f"cage: expected vectorized or synchronized, got {kind!r}")


class ParllelSide(Side):
    """A BasicSampler over one cage; an AlternatingSampler if the cage has two groups."""

    libraries = ("numba", "torch")

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        with ExitStack() as stack:
            self.cage = self.build_cage(workload, settings)
            stack.callback(self.cage.close)
            self.handler = self.build_handler(workload, settings)
            spec = BatchSpec(workload.T, workload.B)
            self.samples = allocate_samples([self.cage], spec, self.handler)
            self.sampler = self.build_sampler(spec, settings)
            self._closing = stack.pop_all()
        self._closing.callback(self.sampler.close)
        self._batch = workload.T * workload.B
        self._elapsed = 0

    def build_cage(self, workload: Workload, settings: dict[str, Any]) -> CageInterface:
        """Return the cage of the environments."""
        return build_cage(workload, settings)

    def build_handler(self, workload: Workload, settings: dict[str, Any]) -> Handler:
        """Return the handler of an agent that acts as every other side does."""
        return NumpyHandler(DrawnAgent(workload.actions()))

    def build_sampler(
        self, spec: BatchSpec, settings: dict[str, Any]
    ) -> BasicSampler | AlternatingSampler | RolloutSampler:
        """Return the sampler that the cage is made for."""
        sampler = AlternatingSampler if settings.get("n_groups", 1) > 1 else BasicSampler
        return sampler(spec, [self.cage], self.handler, self.samples)

    def run(self) -> int:
        """Collect a batch; no slot is spent on a reset."""
        self.sampler.collect_batch(self._elapsed)
        self._elapsed += self._batch
        return self._batch

    def first(self) -> dict[str, float]:
        """Collect the first batch and add up what is in it."""
        steps = self.run()
        env = self.samples.env
        observation: Any = env.observation
        following = [observation[1:], observation[observation.last + 1]]
        ended = np.asarray(env.terminated) | np.asarray(env.truncated)
        return {
            "steps": steps,
            "reward": float(np.asarray(env.reward).sum(dtype=np.float64)),
            "observation": sum(float(np.asarray(x).sum(dtype=np.float64)) for x in following),
            "ended": int(ended.sum()),
        }

    def close(self) -> None:
        """Close sampler and cage."""
        self._closing.close()
