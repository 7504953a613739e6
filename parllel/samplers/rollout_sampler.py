"""Sampling with policies in the workers: one signal per batch instead of one per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parllel.agents.handler import Handler
from parllel.buffers.samples import Samples
from parllel.cages.cage_interface import CageInterface
from parllel.cages.traj_info import TrajInfo
from parllel.samplers.batch_sampler import BatchSampler
from parllel.samplers.lost_steps import check_no_restarts
from parllel.transforms.transform import BatchTransform, StepTransform
from parllel.types import BatchSpec


class RolloutSampler(BatchSampler):
    """Runs the policy in each worker, which steps through a whole batch without waiting for others.

    Samples equal those of `BasicSampler` with the same handler, if the policies compute the same actions.
    Processes wait for the slowest one once per batch instead of once per row, and the policy's computation is
    spread over the cores::

        main       start_batch: parameters, noise | its share of all T rows | values, transforms
        worker                                    | its share of all T rows |

    Args:
        batch_spec, handler, samples, batch_transforms, decorrelation_steps, decorrelation_seed: as for
            `BasicSampler`. The handler's `start_batch` gives the policies their parameters and noise; the
            handler computes values itself, after the rollout.
        cages: as for `BasicSampler`, each with a policy, see `SynchronizedProcessCage.set_policy`.
        step_transforms: must be empty.

    Raises:
        ValueError: if cages, buffer and batch spec do not fit together, a cage has no policy, or there are
            step transforms.
    """

    def __init__(
        self,
        batch_spec: BatchSpec,
        cages: Sequence[CageInterface],
        handler: Handler,
        samples: Samples,
        step_transforms: Sequence[StepTransform] = (),
        batch_transforms: Sequence[BatchTransform] = (),
        **decorrelation: Any,
    ) -> None:
        if step_transforms:
            raise ValueError(
                "RolloutSampler: step_transforms: expected none, as policies act on rows before the main "
                f"process sees them, got {list(step_transforms)}; use BasicSampler"
            )
        check_no_restarts(
            cages, "RolloutSampler", "policies act in its processes; use BasicSampler"
        )
        for i, cage in enumerate(cages):
            if not cage.has_policy:
                raise ValueError(
                    f"cage {i} ({cage.spaces.name}): expected a cage with a policy, got a "
                    f"{type(cage).__name__} without; set one by SynchronizedProcessCage.set_policy"
                )
            if isinstance(handler, Handler) and not handler.provides_for(cage.worker_policy):
                raise ValueError(
                    f"cage {i} ({cage.spaces.name}): expected the policy of this sampler's "
                    f"{type(handler).__name__}, got that of another handler, whose parameters would never "
                    "change; call cage.set_policy(handler.worker_policy()) with the handler of the sampler"
                )
        super().__init__(batch_spec, cages, handler, samples, (), batch_transforms, **decorrelation)

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Fill the buffer with the next `T` steps of every environment."""
        all_envs = self.cages.all_envs
        with self.batch():
            all_envs.start_rollout(self.batch_spec.T)
            all_envs.finish_row()
            # In this process, as only it has the handler; policies see only rows 0 to T - 1.
            self.bootstrap(all_envs.columns)
            return self.finish()
