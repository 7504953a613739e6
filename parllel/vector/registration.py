"""Vector environments by the ids of registered environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from parllel.envs.compiled.registration import register_compiled
from parllel.vector.vector_env import VectorEnv

NAMESPACE = "parllel"


def make_vec(
    id: str | EnvSpec,  # noqa: A002 (gymnasium's name)
    num_envs: int = 1,
    *,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    copy: bool = True,
    parallel: bool = True,
    n_workers: int | None = None,
    n_main: int | None = None,
    timeout_s: float = 60.0,
    start_method: str | None = None,
    **kwargs: Any,
) -> VectorEnv:
    """Make a VectorEnv of registered environments, like `gymnasium.make_vec`.

    Args:
        id: as for `gymnasium.make`; may name a module to import, such as "ale_py:ALE/Pong-v5".
        num_envs: number of environments.
        wrappers: functions that wrap each environment, the innermost first.
        kwargs: passed to `gymnasium.make`.

    The other arguments are those of VectorEnv.

    Raises:
        ValueError: if `num_envs` is not positive.
        gymnasium.error.Error: for an unknown id.
    """
    if num_envs < 1:
        raise ValueError(f"make_vec: num_envs: expected at least 1, got {num_envs}")
    make = partial(_make, id, tuple(wrappers), kwargs)
    env = VectorEnv(
        [make] * num_envs,
        autoreset_mode=autoreset_mode,
        copy=copy,
        parallel=parallel,
        n_workers=n_workers,
        n_main=n_main,
        timeout_s=timeout_s,
        start_method=start_method,
    )
    env.spec = gym.spec(id) if isinstance(id, str) else id
    return env


def register_all() -> None:
    """Register "parllel/ID" for `gymnasium.make_vec`, for each ID of gymnasium and each compiled environment.

    If both have the same ID, it is the compiled environment.
    """
    register_compiled()
    for spec in list(gym.registry.values()):
        name = f"{NAMESPACE}/{spec.id}"
        if spec.namespace == NAMESPACE:
            spec.vector_entry_point = spec.vector_entry_point or _EntryPoint(spec.id)
        # Ids have one namespace at most.
        elif spec.namespace is None and spec.entry_point is not None and name not in gym.registry:
            gym.register(name, vector_entry_point=_EntryPoint(spec.id))


@dataclass(frozen=True)
class _EntryPoint:
    """Makes vector environments of an id. Copies are equal, and so are copies of the specs that hold them."""

    id: str

    def __call__(self, **options: Any) -> VectorEnv:
        return make_vec(self.id, **options)


def _make(
    env_id: str | EnvSpec, wrappers: tuple[Callable[[Any], Any], ...], kwargs: dict[str, Any]
) -> Any:
    env = gym.make(env_id, **kwargs)
    for wrap in wrappers:
        env = wrap(env)
    return env
