"""Samplers: who steps when."""

from parllel.samplers.basic_sampler import BasicSampler
from parllel.samplers.cage_columns import CageColumns
from parllel.samplers.eval_sampler import EvalSampler
from parllel.samplers.sampler import Sampler

__all__ = ["BasicSampler", "CageColumns", "EvalSampler", "Sampler"]
