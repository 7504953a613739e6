"""Adapters that make other kinds of environments fit into cages, and elements of spaces."""

from parllel.envs.parallel_env_adapter import ParallelEnvAdapter, multi_agent_info

__all__ = [
    "ParallelEnvAdapter",
    "multi_agent_info",
]
