"""A cage for a number of equal environments."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from typing import Any

import numpy as np

from parllel.cages import (
    CageInterface,
    EnvFactory,
    SynchronizedProcessCage,
    TrajInfo,
    TrajInfoFactory,
    VectorizedCage,
)
from parllel.samplers import Plan, plan_sampling
from parllel.seeding import Seeds


def build_cages(
    env_factory: EnvFactory,
    n_envs: int,
    *,
    seeds: Seeds,
    parallel: bool | Plan = False,
    name: str = "environments",
    traj_info: TrajInfoFactory = TrajInfo,
    reset_automatically: bool = True,
    stack: ExitStack | None = None,
    **process_arguments: Any,
) -> list[CageInterface]:
    """Return one cage with all environments in this process, or spread over workers.

    The samples are the same either way. The caller closes the cage, or lets `stack` do it.

    Args:
        env_factory, traj_info, reset_automatically: as for `VectorizedCage`.
        n_envs: how many.
        seeds: where the environments' seeds come from.
        parallel: spread them over processes: as a Plan says, or as `plan_sampling` finds best for this
            machine if True, which may be to keep them here.
        name: under which their seeds are drawn; give evaluation another.
        stack: closes the cage when it is left.
        process_arguments: further arguments of SynchronizedProcessCage (`start_method`, `timeout_s`,
            `buffers`); where there are no workers they have no use.

    Raises:
        TypeError: for an argument that SynchronizedProcessCage does not take, and for `seeds` or `parallel`
            of another type.
        ValueError: unless `n_envs` is at least 1, and for a `name` whose seeds were drawn before.
    """
    _check_arguments(n_envs, seeds, parallel, name)
    known = set(inspect.signature(SynchronizedProcessCage).parameters)
    if unknown := sorted(set(process_arguments) - known):
        # Where there are no workers nobody else would notice.
        raise TypeError(
            f"build_cages: expected arguments of its own or of SynchronizedProcessCage, got {unknown}"
        )
    common: Any = {
        "traj_info": traj_info,
        "reset_automatically": reset_automatically,
        "seeds": seeds.spawn(name, n_envs),
    }
    factories = [env_factory] * n_envs
    plan = plan_sampling(env_factory, n_envs) if parallel is True else parallel or Plan(0, n_envs)
    stack = ExitStack() if stack is None else stack
    if not plan.n_workers:
        return [stack.enter_context(VectorizedCage(factories, **common))]
    cage = SynchronizedProcessCage(
        factories,
        n_workers=plan.n_workers,
        n_groups=plan.n_groups,
        participate=plan.n_main > 0,
        n_main=plan.n_main or None,
        spin_us=plan.spin_us,
        cores=plan.cores,
        **common,
        **process_arguments,
    )
    try:
        _ = cage.spaces  # waits until all environments are made
    except BaseException:
        cage.close()
        raise
    return [stack.enter_context(cage)]


def _check_arguments(n_envs: Any, seeds: Any, parallel: Any, name: str) -> None:
    if isinstance(n_envs, bool) or not isinstance(n_envs, (int, np.integer)) or n_envs < 1:
        raise ValueError(
            f"build_cages: n_envs: expected an int of at least 1 for the number of {name!r}, got {n_envs!r}"
        )
    if not isinstance(seeds, Seeds):
        number = seeds is None or isinstance(seeds, (int, np.integer))
        hint = f"; give Seeds({seeds})" if number else ""
        raise TypeError(f"build_cages: seeds: expected Seeds, got {seeds!r}{hint}")
    if not isinstance(parallel, (bool, Plan)):
        hint = f"; give Plan({parallel}) for as many workers" if isinstance(parallel, int) else ""
        raise TypeError(f"build_cages: parallel: expected a bool or a Plan, got {parallel!r}{hint}")
