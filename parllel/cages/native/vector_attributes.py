"""Attributes and methods of the environments within a vector environment.

SyncVectorEnv      those of each of its environments, through their wrappers
AsyncVectorEnv     the same, by its own `get_attr`, `set_attr` and `call`
others             those of the vector environment: what has n parts is one for each, all else is of all
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parllel.cages.stepping.env_attributes import set_env_attribute


def get_attribute(env: Any, name: str, n: int) -> list[Any]:
    """Return an attribute of each of the n environments."""
    core = env.unwrapped
    if hasattr(core, "envs"):
        return [one.get_wrapper_attr(name) for one in core.envs]
    if hasattr(core, "get_attr"):
        return list(core.get_attr(name))
    return _spread(getattr(env, name), n)


def set_attribute(env: Any, name: str, value: Any, n: int) -> None:
    """Set an attribute of each of the n environments; AttributeError where it is not found."""
    core = env.unwrapped
    if hasattr(core, "envs"):
        for one in core.envs:
            set_env_attribute(one, name, value)
    elif hasattr(core, "set_attr"):
        # As a list, or a value that is one would be taken for values of each.
        core.set_attr(name, [value] * n)
    else:
        set_env_attribute(env, name, value)


def call_method(env: Any, name: str, n: int, args: tuple[Any, ...], kwargs: Any) -> list[Any]:
    """Call a method of each of the n environments; return the results."""
    core = env.unwrapped
    if hasattr(core, "envs"):
        # All are looked up before any is called: a misspelled name then changes nothing.
        return [method(*args, **kwargs) for method in get_attribute(env, name, n)]
    if hasattr(core, "get_attr"):
        return list(core.call(name, *args, **kwargs))
    return _spread(getattr(env, name)(*args, **kwargs), n)


def _spread(value: Any, n: int) -> list[Any]:
    if isinstance(value, np.ndarray):
        parts = value.ndim > 0 and len(value) == n
    else:
        parts = isinstance(value, (list, tuple)) and len(value) == n
    return list(value) if parts else [value] * n
