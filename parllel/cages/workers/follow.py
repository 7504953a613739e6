"""The choice of how episodes are followed."""

from __future__ import annotations

from parllel.cages.stepping.batched_trajectories import BatchedTrajectories
from parllel.cages.stepping.per_step_trajectories import PerStepTrajectories
from parllel.cages.stepping.trajectories import Trajectories, TrajInfoFactory
from parllel.cages.traj_info import TrajInfo


def follow(make: TrajInfoFactory, n: int) -> Trajectories:
    """Return trajectories of n environments, added up in batches unless a TrajInfo has methods of its own."""
    example = made_by(make)
    # Only these two are called in every step; whatever else a subclass adds costs nothing there.
    sees_agent_info = _has_own(example, "see_agent_info")
    if sees_agent_info or _has_own(example, "step"):
        return PerStepTrajectories(make, n, example, sees_agent_info=sees_agent_info)
    return BatchedTrajectories(make, n, example)


def sees_agent_info(make: TrajInfoFactory) -> bool:
    """Return whether the TrajInfos that `make` makes take in the agent_info of each step."""
    # Asked in the main process too: only then does a cage bind the agent's fields and copy them in each step.
    return _has_own(made_by(make), "see_agent_info")


def made_by(make: TrajInfoFactory) -> TrajInfo:
    """Return what the factory makes; TypeError unless it is one and makes a TrajInfo."""
    if not callable(make):
        raise TypeError(
            f"traj_info: expected a class or function that makes a TrajInfo, got {make!r}"
        )
    traj = make()
    if not isinstance(traj, TrajInfo):
        raise TypeError(f"traj_info: expected it to make a TrajInfo, got {traj!r}")
    return traj


def _has_own(traj: TrajInfo, method: str) -> bool:
    # An object is looked at, not the factory, which may be a function or a partial; and its own dict as well,
    # as a factory may have set the method on the object.
    own = getattr(type(traj), method, None) is not getattr(TrajInfo, method)
    return own or method in vars(traj)
