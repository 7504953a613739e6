"""Sampling in two halves: the agent acts for one while the environments of the other step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parllel.agents import Handler
from parllel.buffers import Samples
from parllel.cages import CageInterface, TrajInfo
from parllel.samplers.batch_work import BatchWork
from parllel.samplers.sampler import Sampler
from parllel.transforms import BatchTransform, StepTransform
from parllel.types import BatchSpec, State


class AlternatingSampler(Sampler):
    """Step the environments in two halves, so that the agent need not wait for them nor they for it.

    Samples are those of `BasicSampler`, for an agent that answers to each observation by itself. It pays
    where environments step in other processes and take about as long as the agent::

        environments   |-- first t --|-- second t --|-- first t+1 --|-- second t+1 --|
        agent          | second t    | first t+1    | second t+1    | first t+2      |

    Args:
        batch_spec, handler, samples: as for `BasicSampler`; the agent is given one half at a time.
        step_transforms, batch_transforms: the same; a step transform is given one half at a time.
        decorrelation_steps, decorrelation_seed: the same.
        cages: as for `BasicSampler`, and at least two of them, or one with two groups. They are divided where
            one group ends and the next begins, as near to the middle column as there is.

    Raises:
        ValueError: if cages, buffer and batch spec do not fit, or there is nothing to alternate between.
    """

    def __init__(
        self,
        batch_spec: BatchSpec,
        cages: Sequence[CageInterface],
        handler: Handler,
        samples: Samples,
        step_transforms: Sequence[StepTransform] = (),
        batch_transforms: Sequence[BatchTransform] = (),
        *,
        decorrelation_steps: int = 0,
        decorrelation_seed: Any = None,
    ) -> None:
        self.batch_spec = batch_spec
        self.handler = handler
        self.samples = samples
        self._work = BatchWork(
            batch_spec,
            cages,
            handler,
            samples,
            step_transforms,
            batch_transforms,
            decorrelation_steps,
            decorrelation_seed,
        )
        self._halves = self._work.cages.everyone.halves()

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Fill the buffer with `T` further steps of every environment."""
        work, halves = self._work, self._halves
        with work.batch():
            for t in range(self.batch_spec.T):
                for half in halves:
                    if t > 0:
                        half.finish_row()  # while the other half is stepping on
                    work.act(t, half.columns)
                    half.start_row(t)
            for half in halves:
                half.finish_row()
                work.bootstrap(half.columns)
            return work.finish()

    @property
    def stats(self) -> dict[str, Any]:
        """Return the `stats` of the transforms, as `Class/name`."""
        return self._work.stats

    def state(self) -> State:
        """Return the state of the transforms, in order."""
        return self._work.state()

    def load_state(self, state: State) -> None:
        """Take back what `state` returned; ValueError for another number of transforms."""
        self._work.load_state(state)

    def close(self) -> None:
        """Close the cages and the handler; may be called twice."""
        self._work.close()
