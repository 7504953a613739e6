"""Agents choose actions; handlers connect them to the batch."""

from parllel.agents.action_check import check_action_space, check_example_action
from parllel.agents.agent import Agent, EnvIndices
from parllel.agents.examples import agent_examples, initial_state_example, noise_example
from parllel.agents.handler import Handler
from parllel.agents.numpy_handler import NumpyHandler
from parllel.agents.random_agent import RandomAgent
from parllel.agents.weights import load_weights, weights_of

__all__ = [
    "Agent",
    "EnvIndices",
    "Handler",
    "NumpyHandler",
    "RandomAgent",
    "agent_examples",
    "check_action_space",
    "check_example_action",
    "initial_state_example",
    "load_weights",
    "noise_example",
    "weights_of",
]
