"""What a name of an environment means.

"CartPole-v1", "ALE/Pong-v5"              an id of gymnasium
"minigrid:MiniGrid-Empty-5x5-v0"          one that a module registers
"MiniGrid-...", "BabyAI-...", "ALE/..."   the module is known
"file.py:function"                        what a function of the file returns; the file is executed
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium as gym

_FILE = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)")
_ID = re.compile(r"(?:(?P<module>[\w.]+):)?(?P<id>[\w:./-]+)")
_MODULES = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid", "ALE/": "ale_py"}
_NONE: Mapping[str, Any] = MappingProxyType({})


def env_named(name: str, kwargs: Mapping[str, Any] = _NONE) -> Callable[[], gym.Env[Any, Any]]:
    """Return what makes the environment of a name; only then is anything imported.

    Environments are made with the render mode "rgb_array" if they have it and none is given: it costs nothing
    until a frame is asked for.

    Args:
        name: see the top of this module.
        kwargs: for `gymnasium.make`, or the function.

    Raises:
        ValueError: for text that cannot be a name; from what is returned, if there is no such environment.
        FileNotFoundError: for a file that is not there.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"env_id: expected the name of an environment, got {name!r}")
    given = dict(kwargs)
    match = _FILE.fullmatch(name)
    if match:
        file = Path(match["file"])
        if not file.is_file():
            raise FileNotFoundError(f"env_id {name!r}: {file}: there is no such file")
        return lambda: _from_file(name, file, match["name"], given)
    if name.endswith(".py") or not _ID.fullmatch(name):
        raise ValueError(
            f"env_id: expected an id of gymnasium, module:id or file.py:function, got {name!r}"
        )
    return lambda: _from_gymnasium(name, given)


def module_of(name: str) -> str:
    """Return the module that registers the id of an environment; "" if that is gymnasium, or unknown."""
    module, _, env_id = name.rpartition(":")
    return module or next((m for start, m in _MODULES.items() if env_id.startswith(start)), "")


def _from_file(name: str, file: Path, function: str, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    # Here, as most operators need none of it.
    from parllel.runs import import_script

    make = getattr(import_script(file), function, None)
    if not callable(make):
        raise ValueError(f"env_id {name!r}: {file} defines no function {function!r}")
    if "render_mode" not in kwargs and _takes_render_mode(make):
        kwargs = {**kwargs, "render_mode": "rgb_array"}
    env = make(**kwargs)
    if not isinstance(env, gym.Env):
        raise ValueError(f"env_id {name!r}: expected a gymnasium.Env from {function}, got {env!r}")
    return env


def _takes_render_mode(make: Callable[..., Any]) -> bool:
    try:
        return "render_mode" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        return False


def _from_gymnasium(name: str, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    env_id, known = name.rpartition(":")[2], module_of(name)
    if known and env_id not in gym.registry:
        try:
            importlib.import_module(known)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"env_id {name!r}: needs {error.name}, which is not installed"
            ) from error
    try:
        spec = gym.spec(env_id)
        creator = gym.envs.registration.load_env_creator(spec.entry_point)  # type: ignore[arg-type]
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise ValueError(f"env_id {name!r}: {error}") from error
    modes = getattr(creator, "metadata", {}).get("render_modes") or ()
    if "render_mode" not in {**spec.kwargs, **kwargs} and "rgb_array" in modes:
        kwargs = {**kwargs, "render_mode": "rgb_array"}
    env: gym.Env[Any, Any] = gym.make(env_id, **kwargs)
    return env
