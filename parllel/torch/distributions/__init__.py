"""Distributions over actions: stateless arithmetic on tensors of parameters."""

from parllel.torch.distributions.categorical import Categorical
from parllel.torch.distributions.distribution import Distribution
from parllel.torch.distributions.ensemble import EnsembleDistribution
from parllel.torch.distributions.gaussian import Gaussian, GaussianParams
from parllel.torch.distributions.multi_discrete import MultiDiscrete

__all__ = [
    "Categorical",
    "Distribution",
    "EnsembleDistribution",
    "Gaussian",
    "GaussianParams",
    "MultiDiscrete",
]
