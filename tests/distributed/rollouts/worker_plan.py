"""What a worker of the model test consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from scripted_cages import Script, scripted
from watched_parts import WatchedEnvWorker
from weighted_agent import weighted

from parllel import BatchSpec
from parllel.cages import ProcessCage, VectorizedCage
from parllel.distributed.rollouts import AsynchronousSchedule, SynchronousSchedule
from parllel.samplers import BasicSampler, RecurrentSampler
from parllel.system.processes import RestartBudget
from parllel.testing.dummy_envs import CountingEnv
from parllel_patterns import allocate_samples

START_S = 10.0


@dataclass(frozen=True)
class Plan:
    """What a worker consists of.

    kind: "rows" or "ready".  places: one cage for all environments ("together"), one for each ("plain"), or
        processes, "fake" ones within this process or "real" ones.
    lengths: of the episodes of each environment.  waits: how often an environment is asked in vain.
    """

    kind: str
    places: str
    recurrent: bool
    lengths: tuple[tuple[int, ...], ...]
    length: int
    T: int
    batch_size: int
    max_wait_s: float
    waits: tuple[int, ...]
    restarts: int
    capacity: int
    max_staleness: int | None
    timeout_s: float = 1.0

    @property
    def fragment_length(self) -> int:
        """The one that the schedule asks for, or `length`."""
        return self.T if self.recurrent and self.kind == "rows" else self.length

    @property
    def restarting(self) -> bool:
        """Whether environments that die are started again."""
        return self.kind == "ready" and self.places in ("fake", "real")

    @property
    def resets(self) -> bool:
        """Whether environments are reset at once when their episodes end."""
        return not (self.kind == "rows" and self.recurrent)

    def schedule(
        self, seed: int, scripts: Sequence[Script], producer: Any
    ) -> tuple[Any, list[Any]]:
        """Return a schedule and what it steps: cages, or EnvWorkers that tell the producer of deaths."""
        n = len(self.lengths)
        handler = weighted(recurrent=self.recurrent, n_envs=2 * n + 4)
        makes = [partial(CountingEnv, lengths, end="alternate") for lengths in self.lengths]
        seeds = [seed + i for i in range(n)]
        if self.places == "together":
            sources = [VectorizedCage(makes, seeds=seeds, reset_automatically=self.resets)]
        else:
            kept = {"seed": seeds, "index": range(n), "env_factory": makes}
            sources = [
                self._source(script, producer, **dict(zip(kept, values, strict=True)))
                for script, *values in zip(scripts, *kept.values(), strict=True)
            ]
        cages = [getattr(source, "cage", source) for source in sources]
        rows = self.kind == "rows"
        samples = allocate_samples(cages, BatchSpec(self.T, n), handler, next_observation=rows)
        if rows:
            sampler = RecurrentSampler if self.recurrent else BasicSampler
            return SynchronousSchedule(
                sampler(BatchSpec(self.T, n), cages, handler, samples)
            ), sources
        batch_size = min(self.batch_size, n)
        schedule = AsynchronousSchedule(
            sources, handler, samples, batch_size=batch_size, max_wait_s=self.max_wait_s
        )
        if self.places == "real":
            # For rows, and only now: what else a cage is asked for, and its start, may take START_S.
            for source in sources:
                source.row_timeout_s = self.timeout_s
        return schedule, sources

    def _source(self, script: Script, producer: Any, **options: Any) -> Any:
        if self.places == "plain":
            return scripted(script)(reset_automatically=self.resets, **options)
        if not self.restarting:
            return ProcessCage(reset_automatically=self.resets, start_method="fork", **options)
        budget = RestartBudget(self.restarts, 3600.0, 0.0, 0.0)
        make = partial(WatchedEnvWorker, budget=budget, start_method="fork", **options)
        if self.places == "real":
            source = make(timeout_s=START_S)
        else:
            with mock.patch(
                "parllel.distributed.rollouts.env_worker.ProcessCage", scripted(script)
            ):
                source = make()
        source.producer, script.worker = producer, source
        return source
