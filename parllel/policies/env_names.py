"""Environment names.

"CartPole-v1", "ALE/Pong-v5"              an id of gymnasium
"minigrid:MiniGrid-Empty-5x5-v0"          an id that a module registers
"MiniGrid-...", "ALE/...", "parllel/..."  ids whose module is known, also "BabyAI-..."
"file.py:function"                        a function that returns the environment; the file is executed
"gymnasium/..."                           the name after the prefix; games have other prefixes
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium as gym

_FAMILY = "gymnasium/"
_FILE = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)")
_ID = re.compile(r"(\w+(\.\w+)*:)?[\w./-]+")
_MODULES = {
    "MiniGrid-": "minigrid",
    "BabyAI-": "minigrid",
    "ALE/": "ale_py",
    "parllel/": "parllel.envs.compiled",
}
_NONE: Mapping[str, Any] = MappingProxyType({})


def env_named(name: str, kwargs: Mapping[str, Any] = _NONE) -> Callable[[], gym.Env[Any, Any]]:
    """Return a factory of the named environment. Nothing is imported until it is called.

    The render mode defaults to "rgb_array" if the environment supports it: it costs nothing until a frame is
    rendered.

    Args:
        name: see the module docstring.
        kwargs: for `gymnasium.make`, or the function.

    Raises:
        ValueError: for text that cannot be a name. The factory raises it if there is no such environment.
        FileNotFoundError: for a file that does not exist.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"environment: expected a name, got {name!r}")
    given = dict(kwargs)
    file = file_of(name)
    if file is not None:
        _check_file(name, file)
        return partial(_from_file, name, given)
    text = name.removeprefix(_FAMILY)
    if text.endswith(".py") or not _ID.fullmatch(text):
        raise ValueError(
            f"environment {name!r}: expected a Gymnasium id, module:id or file.py:function"
        )
    return partial(_from_gymnasium, name, given)


def check_env_name(name: str) -> None:
    """Raise the errors of `env_named` and its factory that can be found without executing code.

    Imports no module and executes no file.
    """
    # Imported here, because workers make environments but do not check names.
    from importlib.util import find_spec

    env_named(name)
    if file_of(name) is not None:
        return
    module, env_id = _module_and_id(name)
    if not module or env_id in gym.registry:
        _spec(name, env_id)
    elif find_spec(module.partition(".")[0]) is None:
        raise _not_installed(name, module)


def file_of(name: str) -> Path | None:
    """Return the file of a name "file.py:function"; None for other names."""
    match = _FILE.fullmatch(name.removeprefix(_FAMILY))
    return None if match is None else Path(match["file"])


def names_code(name: str) -> bool:
    """Return whether a name selects a module to import or a file to execute.

    For callers that receive names from untrusted sources.
    """
    return ":" in name


def function_named(name: str) -> Callable[..., Any]:
    """Return the function of a name "file.py:function". Executes the file, once per process.

    Raises:
        ValueError: if the file cannot be imported, or does not define the function.
        FileNotFoundError: if the file does not exist.
    """
    # Imported here, because most names do not need it.
    from parllel.runs.reference import import_script

    file, function = file_of(name), name.rpartition(":")[2]
    assert file is not None
    _check_file(name, file)
    found = getattr(import_script(file), function, None)
    if not callable(found):
        raise ValueError(f"environment {name!r}: {file} defines no function {function!r}")
    made: Callable[..., Any] = found
    return made


def takes_render_mode(name: str) -> bool:
    """Return whether the named environment takes a render mode. Imports its code."""
    if file_of(name) is not None:
        return _takes_render_mode(function_named(name))
    return _takes_render_mode(_creator(_spec(name, _module_and_id(name)[1])))


def _check_file(name: str, file: Path) -> None:
    if not file.is_file():
        raise FileNotFoundError(f"environment {name!r}: {file}: there is no such file")


def _from_file(name: str, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    make = function_named(name)
    if "render_mode" not in kwargs and _takes_render_mode(make, unnamed=False):
        kwargs = {**kwargs, "render_mode": "rgb_array"}
    env = make(**kwargs)
    if not isinstance(env, gym.Env):
        function = name.rpartition(":")[2]
        raise ValueError(
            f"environment {name!r}: expected a gymnasium.Env from {function}, got {env!r}"
        )
    return env


def _takes_render_mode(make: Any, *, unnamed: bool = True) -> bool:
    """Return whether a function takes a render mode.

    unnamed: also accept `**kwargs`.
    """
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return False
    return "render_mode" in parameters or (
        unnamed and any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    )


def _from_gymnasium(name: str, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    module, env_id = _module_and_id(name)
    if module and env_id not in gym.registry:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise _not_installed(name, str(error.name)) from error
    spec = _spec(name, env_id)
    try:
        creator = _creator(spec)
        metadata = getattr(creator, "metadata", None)
        # On a wrapper's class this is a property.
        modes = (metadata.get("render_modes") if isinstance(metadata, Mapping) else None) or ()
        if "render_mode" not in {**spec.kwargs, **kwargs}:
            if "rgb_array" in modes:
                kwargs = {**kwargs, "render_mode": "rgb_array"}
        elif kwargs.get("render_mode", "") is None and not _takes_render_mode(creator):
            kwargs = {key: value for key, value in kwargs.items() if key != "render_mode"}
        env: gym.Env[Any, Any] = gym.make(env_id, **kwargs)
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise ValueError(f"environment {name!r}: {error}") from error
    return env


def _creator(spec: Any) -> Any:
    """Return the class or function that makes an environment; None for a vector environment only."""
    point = spec.entry_point
    # `gymnasium.register` accepts text "module:name" or a callable.
    return gym.envs.registration.load_env_creator(point) if isinstance(point, str) else point


def _module_and_id(name: str) -> tuple[str, str]:
    """Return the module that registers an id ("" for gymnasium or unknown), and the id."""
    module, _, env_id = name.removeprefix(_FAMILY).rpartition(":")
    known = (of for start, of in _MODULES.items() if env_id.startswith(start))
    return module or next(known, ""), env_id


def _spec(name: str, env_id: str) -> Any:
    try:
        return gym.spec(env_id)
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise ValueError(f"environment {name!r}: {error}") from error


def _not_installed(name: str, module: str) -> ValueError:
    return ValueError(f"environment {name!r}: needs {module}, which is not installed")
