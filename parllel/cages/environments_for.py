"""The choice of how a process steps its environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parllel.cages.environments import Environments
from parllel.cages.make_envs import EnvFactory
from parllel.cages.row_environments import RowEnvironments
from parllel.cages.trajectories import TrajInfoFactory
from parllel.cages.vector_env_factory import VectorEnvFactory
from parllel.cages.vector_environments import VectorEnvironments


def environments_for(
    factories: Sequence[EnvFactory] | VectorEnvFactory,
    seeds: Sequence[Any],
    traj_info: TrajInfoFactory,
    *,
    reset_automatically: bool,
    index: int = 0,
    check: str = "first_episode",
) -> RowEnvironments:
    """Return environments as many as there are seeds, made by what `factories` is."""
    if isinstance(factories, VectorEnvFactory):
        return VectorEnvironments(
            factories,
            seeds,
            traj_info,
            reset_automatically=reset_automatically,
            index=index,
            check=check,
        )
    return Environments(
        factories,
        seeds,
        traj_info,
        reset_automatically=reset_automatically,
        index=index,
        check=check,
    )
