"""What is remembered of each episode of several agents."""

from __future__ import annotations

from typing import Any

from parllel.cages.traj_info import TrajInfo
from parllel.types import Tree


class MultiAgentTrajInfo(TrajInfo):
    """Statistics of one episode; logs the return of each agent as `return_<agent>`.

    Rewards by agent come from `info["reward"]`, as `parllel.envs.ParallelEnvAdapter` gives them. `return_` is
    that of the environment's own reward, the sum over agents.

    Args: see `TrajInfo`.

    Attributes:
        returns: by agent.
    """

    def __init__(self, discount: float = 1.0) -> None:
        super().__init__(discount)
        self.returns: dict[str, float] = {}

    def step(
        self,
        observation: Tree,
        action: Tree,
        reward: float,
        terminated: bool,
        truncated: bool,
        env_info: dict[str, Any],
    ) -> None:
        """Take in one step.

        Raises:
            ValueError: if `env_info` has no rewards by agent.
        """
        rewards = env_info.get("reward")
        if not isinstance(rewards, dict):
            raise ValueError(
                "MultiAgentTrajInfo: expected info['reward'] to be a dict by agent, got info with "
                f"{sorted(env_info)}; see parllel.envs.ParallelEnvAdapter"
            )
        super().step(observation, action, reward, terminated, truncated, env_info)
        returns = self.returns
        for agent, own in rewards.items():
            returns[agent] = returns.get(agent, 0.0) + own

    def as_dict(self) -> dict[str, Any]:
        """Return what is worth logging: what `TrajInfo` has, and `return_<agent>`."""
        row = super().as_dict()
        returns = row.pop("returns")
        return {**row, **{f"return_{agent}": value for agent, value in returns.items()}}
