"""Sampling in two halves: the agent acts for one while the environments of the other step."""

from __future__ import annotations

from typing import Any

from parllel.buffers import Samples
from parllel.cages import TrajInfo
from parllel.samplers.batch_sampler import BatchSampler


class AlternatingSampler(BatchSampler):
    """Step the environments in two halves, so that neither the agent nor they need to wait.

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

    def __init__(self, *arguments: Any, **named_arguments: Any) -> None:
        super().__init__(*arguments, **named_arguments)
        self._halves = self.cages.everyone.halves()

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Fill the buffer with `T` further steps of every environment."""
        halves = self._halves
        with self.batch():
            for t in range(self.batch_spec.T):
                for half in halves:
                    if t > 0:
                        half.finish_row()  # while the other half is stepping on
                    self.act(t, half.columns)
                    half.start_row(t)
            for half in halves:
                half.finish_row()
                self.bootstrap(half.columns)
            return self.finish()
