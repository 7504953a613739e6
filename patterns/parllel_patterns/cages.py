"""Cages for a number of equal environments."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from parllel.cages import Cage, CageInterface, EnvFactory, ProcessCage, TrajInfo, TrajInfoFactory
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
    """Return `n_envs` cages of one environment each, in this process or in one of their own.

    name: under which their seeds are drawn; give evaluation another.
    process_arguments: further arguments of ProcessCage (`start_method`, `timeout_s`, `buffers`).

    The caller closes them; if one cannot be made, those before it are closed here.
    """
    make: Any = partial(ProcessCage, **process_arguments) if parallel else Cage
    with contextlib.ExitStack() as stack:
        cages: list[CageInterface] = []
        for index, seed in enumerate(seeds.spawn(name, n_envs)):
            cage = make(
                env_factory,
                traj_info=traj_info,
                reset_automatically=reset_automatically,
                seed=seed,
                index=index,
            )
            stack.callback(cage.close)
            cages.append(cage)
        for cage in cages:
            _ = cage.spaces  # waits until it is made, while all others start as well
        stack.pop_all()
    return cages
