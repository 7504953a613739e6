"""A cage with several environments of one kind."""

from __future__ import annotations

from contextlib import ExitStack
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


# Also without workers, where nothing reads the arguments of SynchronizedProcessCage: a misspelt one would
# come to light on another machine.
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
    **process_arguments: Any,
) -> list[CageInterface]:
    """Return one cage with all environments in this process, or spread over workers.

    The samples are the same either way, unless environments of a native vector environment draw from one
    generator, as those of CartPoleVectorEnv do. The caller closes the cage, or lets `stack` do it.

    Args:
        env_factory, traj_info, reset_automatically: as for `VectorizedCage`.
        n_envs: number of environments.
        seeds: from which the environments' seeds are drawn.
        parallel: whether to spread them over processes: a Plan, or True for the plan that `plan_sampling`
            finds best for this machine, which may be to keep them in this process.
        name: under which the seeds are drawn; give evaluation another.
        stack: closes the cage when the stack is closed.
        process_arguments: further arguments of SynchronizedProcessCage (`start_method`, `timeout_s`,
            `buffers`); ignored if there are no workers.

    Raises:
        TypeError: for an argument that SynchronizedProcessCage does not take, and for `seeds` or `parallel`
            of another type.
        ValueError: unless `n_envs` is at least 1, for a Plan that leaves no environments for its workers, and
            for a `name` whose seeds were drawn before.
    """
    _check_arguments(n_envs, seeds, name)
    _check_parallel(parallel, n_envs)
    stack = ExitStack() if stack is None else stack
    # After the checks of arguments: the planner makes an environment and steps it, which takes time.
    plan = plan_sampling(env_factory, n_envs) if parallel is True else parallel or Plan(0, n_envs)
    # After all checks: a name can be drawn only once, also by a call that fails.
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


def _spread(
    factories: list[EnvFactory] | VectorEnvFactory, plan: Plan, **arguments: Any
) -> SynchronizedProcessCage:
    """Return a cage whose environments are all made, or close it."""
    cage = SynchronizedProcessCage(
        factories,
        n_workers=plan.n_workers,
        n_groups=plan.n_groups,
        # A Plan says 0 where the cage expects None: no environments in this process.
        participate=plan.n_main > 0,
        n_main=plan.n_main or None,
        spin_us=plan.spin_us,
        cores=plan.cores,
        **arguments,
    )
    try:
        _ = cage.spaces  # waits until all environments are made
    except BaseException:
        # The caller's stack does not hold it yet, and its workers would outlive the error.
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
        hint = f"; give Seeds({seeds})" if number else ""
        raise TypeError(f"build_cages: seeds: expected Seeds, got {seeds!r}{hint}")
    if name in seeds.state()["given"]:  # a cell of a notebook that is run again
        raise ValueError(
            f"build_cages: the seeds of {name!r} were drawn already; give further environments another name, "
            "or make seeds = Seeds(...) in the same cell as the cages"
        )


def _check_parallel(parallel: Any, n_envs: int) -> None:
    if not isinstance(parallel, (bool, Plan)):
        hint = f"; give Plan({parallel}) for as many workers" if isinstance(parallel, int) else ""
        raise TypeError(f"build_cages: parallel: expected a bool or a Plan, got {parallel!r}{hint}")
    if isinstance(parallel, Plan) and n_envs - parallel.n_main < parallel.n_workers:
        workers = f"its {parallel.n_workers} workers" if parallel.n_workers > 1 else "its worker"
        most = n_envs - parallel.n_workers
        # The second number is easily taken for that of all environments.
        hint = f"give {n_envs} workers or fewer"
        if most >= 0:
            hint = f"give n_main={most}" + (" or less" if most else "")
        raise ValueError(
            f"build_cages: parallel: expected a Plan with an environment or more for each of {workers}, got "
            f"n_main={parallel.n_main} of {n_envs} environments for this process; {hint}"
        )
