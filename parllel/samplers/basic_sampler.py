"""Sampling with environments that reset automatically."""

from __future__ import annotations

from parllel.buffers.samples import Samples
from parllel.cages.traj_info import TrajInfo
from parllel.samplers.batch_sampler import BatchSampler


class BasicSampler(BatchSampler):
    """Steps all environments `T` times; the agent acts for all of them at once.

    Row t holds the observation, the agent's action, and the reward and flags of the step. Row T of
    `agent.agent_info.value` holds the value of the observation after the batch, and `agent.final_value` the
    values of the final observations of truncated episodes. Both are computed after the step
    transforms.

    Args: as for `BatchSampler`; the cages must reset automatically.
    """

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Fill the buffer with the next `T` steps of every environment."""
        columns = self.cages.all_envs.columns
        with self.batch():
            roll_out = self.bound_rollout()
            if roll_out is None:
                # Bound for this batch: for a few environments, looking things up in every row costs as much
                # as their steps.
                act, step = self.bound_act(columns), self.bound_step()
                for t in range(self.batch_spec.T):
                    act(t)
                    step(t)
            else:
                roll_out(self.batch_spec.T)
            # Before `finish`, which updates the statistics with which row T must still be transformed.
            self.bootstrap(columns)
            return self.finish()
