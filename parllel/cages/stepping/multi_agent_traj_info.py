"""Statistics of an episode with several agents."""

from __future__ import annotations

from typing import Any

from parllel.cages.traj_info import TrajInfo
from parllel.types import Tree


class MultiAgentTrajInfo(TrajInfo):
    """Statistics of one episode; logs the return of each agent as `return_<agent>`.

    Reads the rewards of each agent from `info["reward"]`, where `parllel.envs.ParallelEnvAdapter`
    puts them. `return_` sums the environment's own reward, which is the sum over agents.

    Args: see `TrajInfo`.

    Attributes:
        returns: return of each agent so far, by name.
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
        """Add one step.

        Raises:
            ValueError: if `env_info` has no rewards keyed by agent.
        """
        # Checked before anything is added, so that a refused step leaves the record unchanged.
        rewards = env_info.get("reward")
        if not isinstance(rewards, dict):
            raise ValueError(
                "MultiAgentTrajInfo: expected info['reward'] to be a dict keyed by agent, got an "
                f"info with {sorted(env_info)}; see parllel.envs.ParallelEnvAdapter"
            )
        # The parent updates `return_`. Overriding `step` is what makes cages call it in each step.
        super().step(observation, action, reward, terminated, truncated, env_info)
        returns = self.returns
        for agent, own in rewards.items():
            # Agents appear with their first reward, and keep their return after they have left.
            returns[agent] = returns.get(agent, 0.0) + own

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics to log: those of `TrajInfo`, and `return_<agent>`."""
        row = super().as_dict()
        # Logs take numbers only, no dicts.
        returns = row.pop("returns")
        return {**row, **{f"return_{agent}": value for agent, value in returns.items()}}
