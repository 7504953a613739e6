"""Adapters that make other kinds of environments fit into cages."""

from parllel.envs.parallel_env_adapter import (
    ParallelEnv,
    ParallelEnvAdapter,
    multi_agent_info,
    zero_of,
)

__all__ = [
    "ParallelEnv",
    "ParallelEnvAdapter",
    "multi_agent_info",
    "zero_of",
]
