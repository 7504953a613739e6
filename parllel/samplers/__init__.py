"""Samplers: the schedules that step environments and agent to fill batches."""

from parllel.samplers.alternating_sampler import AlternatingSampler
from parllel.samplers.asynchronous_sampler import AsynchronousSampler
from parllel.samplers.basic_sampler import BasicSampler
from parllel.samplers.batch_sampler import BatchSampler
from parllel.samplers.cage_columns import CageColumns
from parllel.samplers.eval_sampler import EvalSampler
from parllel.samplers.full_episode_sampler import FullEpisodeSampler
from parllel.samplers.part_checks import check_handler
from parllel.samplers.planner import Plan, measure_inference, plan_sampling
from parllel.samplers.recurrent_sampler import RecurrentSampler
from parllel.samplers.rollout_sampler import RolloutSampler
from parllel.samplers.sampler import Sampler

__all__ = [
    "AlternatingSampler",
    "AsynchronousSampler",
    "BasicSampler",
    "BatchSampler",
    "CageColumns",
    "EvalSampler",
    "FullEpisodeSampler",
    "Plan",
    "RecurrentSampler",
    "RolloutSampler",
    "Sampler",
    "check_handler",
    "measure_inference",
    "plan_sampling",
]
