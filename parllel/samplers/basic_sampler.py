"""Sampling with environments that reset within the step that ends their episode."""

from __future__ import annotations

from parllel.buffers import Samples
from parllel.cages import TrajInfo
from parllel.samplers.batch_sampler import BatchSampler


class BasicSampler(BatchSampler):
    """Step all environments `T` times; the agent acts for all of them at once.

    Row t holds the observation, the agent's answer to it, and what followed. The value of the observation
    after the batch, after the step transforms, goes to row T of `agent.agent_info.value`, and the values of
    truncated episodes' true last observations to `agent.final_value`.

    Args: those of `BatchSampler`; cages with automatic resets.
    """

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Fill the buffer with `T` further steps of every environment."""
        everyone = self.cages.everyone
        columns = everyone.columns
        with self.batch():
            for t in range(self.batch_spec.T):
                self.act(t, columns)
                everyone.start_row(t)
                everyone.finish_row()
            self.bootstrap(columns)
            return self.finish()
