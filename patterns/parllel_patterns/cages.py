"""Construction of cages, in this process or spread over workers."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import fields, replace
from typing import Any

import numpy as np

from parllel.cages import (
    CageInterface,
    EnvFactory,
    SynchronizedProcessCage,
    TrajInfo,
    TrajInfoFactory,
    VectorEnvFactory,
    VectorizedCage,
)
from parllel.runs.names import suggest_names
from parllel.samplers import Plan, plan_sampling
from parllel.seeding import Seeds
from parllel.system.processes import RestartBudget

# Arguments of SynchronizedProcessCage that a Plan decides.
_PLANNED = {field.name for field in fields(Plan)} | {"participate"}


# Checked even without workers: nothing would read the arguments of SynchronizedProcessCage then, and a
# misspelt one would only show on another machine.
@suggest_names(SynchronizedProcessCage)
def build_cages(
    env_factory: EnvFactory | VectorEnvFactory,
    n_envs: int,
    *,
    seeds: Seeds,
    parallel: bool | Plan = False,
    name: str = "environments",
    traj_info: TrajInfoFactory = TrajInfo,
    reset_automatically: bool = True,
    stack: ExitStack | None = None,
    restarts: RestartBudget | None = None,
    **process_arguments: Any,
) -> list[CageInterface]:
    """Return one cage of all environments, in this process or spread over workers.

    Samples are the same either way, unless the environments of a native vector environment share
    one generator, as in CartPoleVectorEnv. The caller must close the cage, or pass a `stack` that
    closes it.

    Args:
        env_factory, traj_info, reset_automatically: as for `VectorizedCage`.
        n_envs: number of environments.
        seeds: source of the environments' seeds.
        parallel: whether to spread environments over processes: a Plan, or True for the plan that
            `plan_sampling` finds fastest on this machine, possibly without workers.
        name: name of the seeds; use a different name for evaluation.
        stack: exit stack that closes the cage.
        restarts: budget of restarts of workers that die or hang, see `SynchronizedProcessCage`. All
            environments are in workers then, also if `parallel=True` finds this process faster.
        process_arguments: further arguments of SynchronizedProcessCage (`start_method`, `timeout_s`,
            `buffers`); ignored without workers.

    Raises:
        TypeError: for an argument that SynchronizedProcessCage does not accept, or that a Plan has; or if
            `seeds` or `parallel` has the wrong type.
        ValueError: if `n_envs` is less than 1, for `restarts` without workers, for a Plan that leaves workers
            without environments, and for a `name` whose seeds were already drawn.
    """
    _check_arguments(n_envs, seeds, name)
    _check_parallel(parallel, n_envs)
    _check_planned(process_arguments)
    _check_restarts(restarts, parallel)
    stack = ExitStack() if stack is None else stack
    # After the argument checks, because the planner makes an environment and steps it.
    plan = plan_sampling(env_factory, n_envs) if parallel is True else parallel or Plan(0, n_envs)
    if restarts is not None:
        plan = _in_workers(plan, n_envs)
        process_arguments["restarts"] = restarts
    # After all checks: seeds of a name can be drawn only once, even by a call that fails.
    options: dict[str, Any] = {
        "n": n_envs,
        "traj_info": traj_info,
        "reset_automatically": reset_automatically,
        "seeds": seeds.spawn(name, n_envs),
    }
    factories: list[EnvFactory] | VectorEnvFactory = [env_factory] * n_envs
    if isinstance(env_factory, VectorEnvFactory):
        factories = env_factory
    if not plan.n_workers:
        return [stack.enter_context(VectorizedCage(factories, **options))]
    return [stack.enter_context(_spread(factories, plan, **options, **process_arguments))]


def _in_workers(plan: Plan, n_envs: int) -> Plan:
    """Return a plan in which workers step the environments of this process too."""
    if plan.n_workers and not plan.n_main:
        return plan
    why = f"{plan.why}; with restarts, no environment is in this process"
    return replace(plan, n_workers=min(plan.n_workers + 1, n_envs), n_main=0, why=why)


def _check_restarts(restarts: Any, parallel: bool | Plan) -> None:
    if restarts is None:
        return
    if isinstance(parallel, Plan):
        given = f"Plan({parallel.n_workers}, n_main={parallel.n_main})"
        spread = parallel.n_workers > 0 and not parallel.n_main
    else:
        given, spread = str(parallel), parallel
    if not spread:
        raise ValueError(
            "build_cages: restarts: expected all environments in workers, because this process cannot be "
            f"restarted if one of its own environments crashes, got parallel={given}; pass "
            "parallel=True or Plan(n_workers)"
        )


def _spread(
    factories: list[EnvFactory] | VectorEnvFactory, plan: Plan, **arguments: Any
) -> SynchronizedProcessCage:
    """Return a cage after all its workers have made their environments; close it on errors."""
    cage = SynchronizedProcessCage(
        factories,
        n_workers=plan.n_workers,
        n_groups=plan.n_groups,
        # A Plan has 0 where the cage expects None, for no environments in this process.
        participate=plan.n_main > 0,
        n_main=plan.n_main or None,
        spin_us=plan.spin_us,
        cores=plan.cores,
        **arguments,
    )
    try:
        _ = cage.spaces  # waits until all environments are made
    except BaseException:
        # Not on the caller's stack yet: its workers would outlive the error.
        cage.close()
        raise
    return cage


def _check_arguments(n_envs: Any, seeds: Any, name: str) -> None:
    if isinstance(n_envs, bool) or not isinstance(n_envs, (int, np.integer)) or n_envs < 1:
        raise ValueError(
            f"build_cages: n_envs: expected an int of at least 1 for the number of {name!r}, got {n_envs!r}"
        )
    if not isinstance(seeds, Seeds):
        number = seeds is None or isinstance(seeds, (int, np.integer))
        hint = f"; pass Seeds({seeds})" if number else ""
        raise TypeError(f"build_cages: seeds: expected Seeds, got {seeds!r}{hint}")
    if name in seeds.state()["given"]:  # a cell of a notebook that is run again
        raise ValueError(
            f"build_cages: the seeds of {name!r} were already drawn. Give the new environments "
            "another name, or create seeds = Seeds(...) in the same cell as the cages"
        )


def _check_planned(arguments: dict[str, Any]) -> None:
    # Without workers they would be ignored.
    for name in arguments:
        if name in _PLANNED:
            raise TypeError(
                f"build_cages: {name}: expected it in a Plan, as in parallel=Plan(n_workers=2, n_main=1), "
                "not as an argument"
            )


def _check_parallel(parallel: Any, n_envs: int) -> None:
    if not isinstance(parallel, (bool, Plan)):
        hint = (
            f"; pass Plan({parallel}) for {parallel} workers" if isinstance(parallel, int) else ""
        )
        raise TypeError(f"build_cages: parallel: expected a bool or a Plan, got {parallel!r}{hint}")
    if isinstance(parallel, Plan) and n_envs - parallel.n_main < parallel.n_workers:
        workers = f"its {parallel.n_workers} workers" if parallel.n_workers > 1 else "its worker"
        most = n_envs - parallel.n_workers
        # n_main is easily mistaken for the number of all environments.
        hint = f"use {n_envs} workers or fewer"
        if most >= 0:
            hint = f"use n_main={most}" + (" or less" if most else "")
        raise ValueError(
            "build_cages: parallel: expected a Plan with at least one environment for each of "
            f"{workers}, got n_main={parallel.n_main} and {n_envs} environments in total; {hint}"
        )
