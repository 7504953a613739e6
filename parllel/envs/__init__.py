"""Adapters that make other kinds of environments fit into cages, and elements of spaces."""

from parllel.envs.around_parallel_env import AroundParallelEnv
from parllel.envs.parallel_env import ParallelEnv
from parllel.envs.parallel_env_adapter import ParallelEnvAdapter, multi_agent_info
from parllel.envs.pettingzoo_module import PettingZooMaker, action_mask_of, pettingzoo_maker
from parllel.envs.single_env_adapter import SingleEnvAdapter, info_of
from parllel.envs.space_elements import draw_actions, zero_of

__all__ = [
    "AroundParallelEnv",
    "ParallelEnv",
    "ParallelEnvAdapter",
    "PettingZooMaker",
    "SingleEnvAdapter",
    "action_mask_of",
    "draw_actions",
    "info_of",
    "multi_agent_info",
    "pettingzoo_maker",
    "zero_of",
]
