"""Choice between single environments and a native vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from parllel.cages.argument_checks import check_factories, check_native
from parllel.cages.native.vector_environments import VectorEnvironments
from parllel.cages.native.vector_stepper import VectorStepper
from parllel.cages.stepping.env_stepper import EnvStepper
from parllel.cages.stepping.environments import Environments
from parllel.cages.stepping.info_environments import InfoEnvironments
from parllel.cages.stepping.make_envs import EnvFactory, VectorEnvFactory
from parllel.cages.stepping.row_environments import RowEnvironments
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.envs.compiled.compiled_env import CompiledEnv
from parllel.system.compilation import compiles

# Wrappers that only check what these environments and cages check too.
_CHECKS = (OrderEnforcing, PassiveEnvChecker)


def factories_by_column(
    env_factories: Sequence[EnvFactory] | VectorEnvFactory,
    n: int | None,
    seeds: Sequence[Any] | None,
    cage: str,
) -> tuple[Sequence[EnvFactory], Sequence[Any]]:
    """Return a factory and a seed for each column; seeds are all None if `seeds` is None.

    Raises:
        TypeError: if `env_factories` is neither a sequence of functions nor a VectorEnvFactory.
        ValueError: if there is no environment, or the number of seeds is wrong.
    """
    if not isinstance(env_factories, VectorEnvFactory):
        return env_factories, check_factories(env_factories, seeds, cage, n)
    seeds = check_native(n, seeds, cage)
    # By column, as `env_factories` of every cage; `environments_for` gets the factory itself.
    return [env_factories] * len(seeds), seeds


def environments_for(
    factories: Sequence[EnvFactory] | VectorEnvFactory,
    seeds: Sequence[Any],
    traj_info: TrajInfoFactory,
    *,
    reset_automatically: bool,
    index: int = 0,
    check: str = "first_episode",
    infos: bool = False,
) -> RowEnvironments:
    """Make the environments of a process, one per seed, from factories or a VectorEnvFactory.

    infos: whether to keep the infos of each row, for `take_infos`, instead of recording episodes.
    """
    # Runs in the process that steps the environments, often a worker. A stepper that raises
    # has closed what it had made; otherwise the result owns it, and its `close` must be
    # called in this process.
    settings: Any = {"reset_automatically": reset_automatically, "index": index, "check": check}
    if isinstance(factories, VectorEnvFactory):
        return VectorEnvironments(
            VectorStepper(factories, seeds, traj_info, **settings), infos=infos
        )
    stepper = EnvStepper(factories, seeds, traj_info, **settings)
    if (envs := _compiled(stepper.envs)) is None:
        return (InfoEnvironments if infos else Environments)(stepper)
    # Only now: it imports numba.
    from parllel.cages.stepping import compiled_environments as compiled

    made = compiled.CompiledInfoEnvironments if infos else compiled.CompiledEnvironments
    return made(stepper, envs)


def _compiled(envs: Sequence[Any]) -> list[CompiledEnv] | None:
    """Return the environments without wrappers if all are compiled and of one class, otherwise None."""
    cores = []
    for env in envs:
        while type(env) in _CHECKS:
            env = env.env
        cores.append(env)
    first = cores[0]
    alike = isinstance(first, CompiledEnv) and all(type(core) is type(first) for core in cores)
    return cores if alike and compiles() else None
