"""Agents whose models are PyTorch modules."""

from parllel.torch.agents.ensemble_agent import EnsembleAgent
from parllel.torch.agents.independent_agents import IndependentAgents
from parllel.torch.agents.learning_group import LearningGroup, MultiAgent
from parllel.torch.agents.pg_agent import CategoricalPgAgent, GaussianPgAgent, PgAgent
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
