"""Cages for a number of equal environments."""

from __future__ import annotations

import contextlib
from typing import Any

from parllel.cages import (
    CageInterface,
    EnvFactory,
    ProcessCage,
    TrajInfo,
    TrajInfoFactory,
    VectorizedCage,
)
from parllel.seeding import Seeds


def build_cages(
    env_factory: EnvFactory,
    n_envs: int,
    *,
    seeds: Seeds,
    parallel: bool = False,
    name: str = "environments",
    traj_info: TrajInfoFactory = TrajInfo,
    reset_automatically: bool = True,
    **process_arguments: Any,
) -> list[CageInterface]:
    """Return one cage with all environments in this process, or a process for each.

    The samples are the same either way. The caller closes the cages; if one cannot be made, those before
    it are closed here.

    Args:
        env_factory, traj_info, reset_automatically: as for `Cage`.
        n_envs: how many.
        seeds: where the environments' seeds come from.
        parallel: give each a process of its own.
        name: under which their seeds are drawn; give evaluation another.
        process_arguments: further arguments of ProcessCage (`start_method`, `timeout_s`, `buffers`); without
            `parallel` they have no use.
    """
    common: Any = {"traj_info": traj_info, "reset_automatically": reset_automatically}
    env_seeds = seeds.spawn(name, n_envs)
    if not parallel:
        return [VectorizedCage([env_factory] * n_envs, seeds=env_seeds, **common)]
    with contextlib.ExitStack() as stack:
        cages: list[CageInterface] = []
        for index, seed in enumerate(env_seeds):
            cage = ProcessCage(env_factory, seed=seed, index=index, **common, **process_arguments)
            stack.callback(cage.close)
            cages.append(cage)
        for made in cages:
            _ = made.spaces  # waits until it is made, while all others start as well
        stack.pop_all()
    return cages
