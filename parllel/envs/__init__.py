"""Adapters from other environment interfaces to Gymnasium's, and elements of spaces."""

from parllel.envs.parallel_env_adapter import ParallelEnvAdapter, multi_agent_info

__all__ = [
    "ParallelEnvAdapter",
    "multi_agent_info",
]
