"""Sampling with policies that act where the environments are: one signal per batch."""

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


class RolloutSampler(Sampler):
    """Let every process act and step through a whole batch by itself.

    Samples are those of `BasicSampler` with the same handler, if policies in workers compute what it does.
    Nobody waits for the slowest environment of each row, only for the slowest process of each batch, and the
    policy's arithmetic is spread over the cores::

        main       start_batch: parameters, noise | its share of all T rows | values, transforms
        worker                                    | its share of all T rows |

    Args:
        batch_spec, handler, samples, batch_transforms, decorrelation_steps, decorrelation_seed: as for
            `BasicSampler`. The handler's `start_batch` provides the policies with what they need; it computes
            values itself.
        cages: as for `BasicSampler`, each with a policy, see `SynchronizedProcessCage.set_policy`.
        step_transforms: must be empty.

    Raises:
        ValueError: if cages, buffer and batch spec do not fit, a cage has no policy, or there are step
            transforms.
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
        if step_transforms:
            raise ValueError(
                "RolloutSampler: step_transforms: expected none, as the main process sees no row before "
                f"the policies act on it, got {list(step_transforms)}; BasicSampler takes them"
            )
        for i, cage in enumerate(cages):
            if not cage.has_policy:
                raise ValueError(
                    f"cage {i} ({cage.spaces.name}): expected a cage with a policy, got a "
                    f"{type(cage).__name__} without; SynchronizedProcessCage.set_policy gives it one"
                )
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
        with work.batch():
            everyone.start_rollout(self.batch_spec.T)
            everyone.finish_row()
            work.bootstrap(everyone.columns)
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
