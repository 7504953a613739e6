"""Samplers: who steps when."""

from parllel.samplers.alternating_sampler import AlternatingSampler
from parllel.samplers.asynchronous_sampler import AsynchronousSampler
from parllel.samplers.basic_sampler import BasicSampler
from parllel.samplers.batch_sampler import BatchSampler
from parllel.samplers.cage_columns import CageColumns, seed_keys
from parllel.samplers.eval_sampler import EvalSampler
from parllel.samplers.full_episode_sampler import FullEpisodeSampler
from parllel.samplers.part_checks import check_handler, check_samples, check_transforms
from parllel.samplers.planner import Plan, measure_inference, plan_sampling
from parllel.samplers.published_weights import Leaf, check_layout, layout_of
from parllel.samplers.publishing_sampler import PublishingSampler
from parllel.samplers.recurrent_sampler import RecurrentSampler
from parllel.samplers.rollout_sampler import RolloutSampler
from parllel.samplers.sampler import Sampler
from parllel.samplers.step_cost import measure_step
from parllel.samplers.units import Unit, Units

__all__ = [
    "AlternatingSampler",
    "AsynchronousSampler",
    "BasicSampler",
    "BatchSampler",
    "CageColumns",
    "EvalSampler",
    "FullEpisodeSampler",
    "Leaf",
    "Plan",
    "PublishingSampler",
    "RecurrentSampler",
    "RolloutSampler",
    "Sampler",
    "Unit",
    "Units",
    "check_handler",
    "check_layout",
    "check_samples",
    "check_transforms",
    "layout_of",
    "measure_inference",
    "measure_step",
    "plan_sampling",
    "seed_keys",
]
