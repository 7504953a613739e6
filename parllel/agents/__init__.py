"""Agents decide on actions; handlers let them read and write the batch."""

from parllel.agents.action_check import check_action_space, check_example_action
from parllel.agents.agent import ALL_ENVS, Agent, EnvIndices
from parllel.agents.examples import agent_examples, initial_state_example, noise_example
from parllel.agents.handler import Handler
from parllel.agents.numpy_handler import NumpyHandler
from parllel.agents.random_agent import RandomAgent
from parllel.agents.row_views import RowViews
from parllel.agents.row_writer import RowWriter
from parllel.agents.shared_parameters import NEVER, SharedParameters
from parllel.agents.small_policy import Layers, SmallPolicy
from parllel.agents.small_worker_policy import SmallWorkerPolicy
from parllel.agents.weights import load_weights, rest_of, weights_of

__all__ = [
    "ALL_ENVS",
    "NEVER",
    "Agent",
    "EnvIndices",
    "Handler",
    "Layers",
    "NumpyHandler",
    "RandomAgent",
    "RowViews",
    "RowWriter",
    "SharedParameters",
    "SmallPolicy",
    "SmallWorkerPolicy",
    "agent_examples",
    "check_action_space",
    "check_example_action",
    "initial_state_example",
    "load_weights",
    "noise_example",
    "rest_of",
    "weights_of",
]
