"""Agents whose models are PyTorch modules."""

from parllel.torch.agents.categorical_pg_agent import CategoricalPgAgent
from parllel.torch.agents.ensemble_agent import EnsembleAgent
from parllel.torch.agents.gaussian_pg_agent import GaussianPgAgent
from parllel.torch.agents.independent_agents import IndependentAgents
from parllel.torch.agents.learning_group import LearningGroup, MultiAgent
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.agents.recurrent_pg_agent import RecurrentPgAgent

__all__ = [
    "CategoricalPgAgent",
    "EnsembleAgent",
    "GaussianPgAgent",
    "IndependentAgents",
    "LearningGroup",
    "MultiAgent",
    "PgAgent",
    "RecurrentPgAgent",
]
