"""Sampling in two halves: the agent acts for one while the environments of the other step."""

from __future__ import annotations

from typing import Any

from parllel.buffers.samples import Samples
from parllel.cages.traj_info import TrajInfo
from parllel.samplers.batch_sampler import BatchSampler


class AlternatingSampler(BatchSampler):
    """Steps the environments in two halves, so that agent and environments work at the same time.

    Samples equal those of `BasicSampler` if the agent's action in one environment does not depend on the
    others. This is faster if environments step in other processes and take about as long as the agent::

        environments   |-- first t --|-- second t --|-- first t+1 --|-- second t+1 --|
        agent          | second t    | first t+1    | second t+1    | first t+2      |

    Args:
        batch_spec, handler, samples: as for `BasicSampler`; the agent acts for one half at a time.
        step_transforms, batch_transforms: as for `BasicSampler`; step transforms get one half at a time.
        decorrelation_steps, decorrelation_seed: as for `BasicSampler`.
        cages: as for `BasicSampler`, but at least two cages, or one with two groups. Each half consists of
            whole groups, split as near to the middle column as possible.

    Raises:
        ValueError: if cages, buffer and batch spec do not fit together, or there is only one group.
    """

    def __init__(self, *arguments: Any, **named_arguments: Any) -> None:
        super().__init__(*arguments, **named_arguments)
        # Chosen once: halves consist of whole groups, which do not change.
        self._halves = self.cages.all_envs.halves()

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Fill the buffer with the next `T` steps of every environment."""
        halves = self._halves
        with self.batch():
            bound = [(half, self.bound_act(half.columns)) for half in halves]
            for t in range(self.batch_spec.T):
                for half, act in bound:
                    # Finished as late as possible: since its start the agent has acted for the other half,
                    # which now steps while the agent acts for this one.
                    if t > 0:
                        half.finish_row()
                    act(t)
                    half.start_row(t)
            for half in halves:
                # The second half still steps while the agent computes values for the first.
                half.finish_row()
                self.bootstrap(half.columns)
            return self.finish()
