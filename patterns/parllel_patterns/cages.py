"""A cage for a number of equal environments."""

from __future__ import annotations

import inspect
from typing import Any

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
    **process_arguments: Any,
) -> list[CageInterface]:
    """Return one cage with all environments in this process, or spread over workers.

    The samples are the same either way. The caller closes the cage.

    Args:
        env_factory, traj_info, reset_automatically: as for `VectorizedCage`.
        n_envs: how many.
        seeds: where the environments' seeds come from.
        parallel: spread them over processes: as a Plan says, or as `plan_sampling` finds best for this
            machine if True, which may be to keep them here.
        name: under which their seeds are drawn; give evaluation another.
        process_arguments: further arguments of SynchronizedProcessCage (`start_method`, `timeout_s`,
            `buffers`); where there are no workers they have no use.

    Raises:
        TypeError: for an argument that SynchronizedProcessCage does not take.
    """
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
    if not plan.n_workers:
        return [VectorizedCage(factories, **common)]
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
    return [cage]
