"""Choice of a cage for the environments of a vector environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from parllel.cages.argument_checks import check_factories
from parllel.cages.cage_interface import CageInterface
from parllel.cages.synchronized_process_cage import SynchronizedProcessCage
from parllel.cages.vectorized_cage import VectorizedCage
from parllel.samplers.planner import Plan, plan_sampling
from parllel.system.processes.cores import usable_cores

EnvFns = Sequence[Callable[[], Any]]


def make_cage(
    env_fns: EnvFns,
    *,
    reset_automatically: bool,
    parallel: bool = True,
    n_workers: int | None = None,
    n_main: int | None = None,
    timeout_s: float = 60.0,
    start_method: str | None = None,
    name: str = "make_cage",
) -> CageInterface:
    """Place environments in this process, in workers, or in both, and return the cage.

    Args:
        env_fns: functions that make the environments.
        parallel: whether workers may step environments. Without `n_workers` the first environment is made
            once more, in this process, and measured for a tenth of a second.
        n_workers: number of worker processes; 0 steps all environments in this process. None chooses.
        n_main: number of environments that this process steps besides; None for an equal share if there are
            more cores than workers.
        timeout_s: time limit for a row, after which the workers are killed.
        start_method: "fork", "forkserver" or "spawn"; None for forkserver where it exists.
        name: what is made, for messages.

    Raises:
        TypeError, ValueError: for arguments that do not fit.
    """
    check_factories(env_fns, None, name)
    if n_workers is not None and n_workers < 0:
        raise ValueError(f"{name}: n_workers: expected 0 or more, got {n_workers}")
    if not parallel and n_workers:
        raise ValueError(
            f"{name}: n_workers: expected 0 or None with parallel=False, got {n_workers}"
        )
    plan = _plan(env_fns, parallel, n_workers, n_main)
    options: Any = {
        "reset_automatically": reset_automatically,
        # One episode can last longer than a short run. gymnasium's own environments check a single step too.
        "check": "first_step",
        "infos": True,
    }
    if not plan.n_workers:
        return VectorizedCage(env_fns, **options)
    return SynchronizedProcessCage(
        env_fns,
        n_workers=plan.n_workers,
        participate=plan.n_main > 0,
        n_main=plan.n_main or None,
        timeout_s=timeout_s,
        start_method=start_method,
        **options,
    )


def _plan(env_fns: EnvFns, parallel: bool, n_workers: int | None, n_main: int | None) -> Plan:
    n = len(env_fns)
    if not parallel or n_workers == 0 or (n == 1 and n_workers is None):
        return Plan(0, n)
    if n_workers is None:
        return plan_sampling(env_fns[0], n)
    if n_main is None:
        n_main = n // (n_workers + 1) if n_workers < usable_cores() else 0
    return Plan(n_workers, n_main)
