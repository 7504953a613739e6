"""Sampling with environments that reset within the step that ends their episode."""

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


class BasicSampler(Sampler):
    """Step all environments `T` times; the agent acts for all of them at once.

    Row t holds the observation, the agent's answer to it, and what followed. The value of the observation
    behind the batch, after the step transforms, goes to row T of `agent.agent_info.value`, and the values of
    truncated episodes' true last observations to `agent.final_value`.

    Args:
        batch_spec: T and B.
        cages: with automatic resets; B environments together.
        handler: of the agent; its buffer views are made here.
        samples: the buffer to fill, [T, B].
        step_transforms: applied in order to each row before the agent sees it.
        batch_transforms: applied in order to the finished batch.
        decorrelation_steps: before the first batch each environment takes a random number of random
            steps, up to this many, so that episodes do not end in step. They are no samples.
        decorrelation_seed: for those numbers; needed if `decorrelation_steps` is not 0.

    The garbage collector rests during a batch. A sampler that an error stopped halfway through one can only
    be closed.

    Raises:
        ValueError: if cages, buffer and batch spec do not fit.
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
        self._everyone = self._work.cages.everyone

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Fill the buffer with `T` further steps of every environment."""
        work, everyone = self._work, self._everyone
        columns = everyone.columns
        with work.batch():
            for t in range(self.batch_spec.T):
                work.act(t, columns)
                everyone.start_row(t)
                everyone.finish_row()
            work.bootstrap(columns)
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
