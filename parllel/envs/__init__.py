"""Adapters that make other kinds of environments fit into cages, and the states of environments."""

from parllel.envs.env_state import (
    env_state,
    load_env_state,
    load_state_as,
    missing_env_state,
    state_as,
)
from parllel.envs.parallel_env_adapter import ParallelEnv, ParallelEnvAdapter, multi_agent_info
from parllel.envs.pickled_state import PickledState
from parllel.envs.random_state import load_space_state, space_state

__all__ = [
    "ParallelEnv",
    "ParallelEnvAdapter",
    "PickledState",
    "env_state",
    "load_env_state",
    "load_space_state",
    "load_state_as",
    "missing_env_state",
    "multi_agent_info",
    "space_state",
    "state_as",
]
