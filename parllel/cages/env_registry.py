"""Gymnasium's registry, carried to processes that do not run the script which filled it.

    main process                                     worker
    import ale_py: fills gymnasium's registry
    pack_registry() -------- with the cage's start ------> adopt_registry(packed)
                                                     gymnasium.make("ALE/Pong-v5"): not registered
                                                     register_adopted(), and once more

Environments are registered when they are asked for in vain, not before: a factory that imports the package
itself would else be told, for each of its environments, that it is registered already.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from importlib import import_module
from typing import Any

import cloudpickle
import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from parllel.errors import add_note

_ENTRY_POINTS = ("entry_point", "vector_entry_point")
_adopted: dict[str, EnvSpec] = {}
_left_behind: dict[str, str] = {}  # why others could not be sent


class WithRegistry:
    """A target of a child process that finds the environments which are registered where this was made."""

    def __init__(self, target: Callable[..., None]) -> None:
        self._target = target
        self._packed = pack_registry()

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        adopt_registry(self._packed)
        self._target(*args, **kwargs)


class LateEntryPoint:
    """What makes an environment, unpickled or imported when it is first needed."""

    def __init__(self, target: str | bytes) -> None:
        self._target = target
        self._loaded: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._load()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._load(), name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LateEntryPoint) and self._target == other._target

    def __hash__(self) -> int:
        return hash(self._target)

    def __reduce__(self) -> Any:
        return LateEntryPoint, (self._target,)

    def _load(self) -> Any:
        if self._loaded is None:
            if isinstance(self._target, bytes):
                self._loaded = cloudpickle.loads(self._target)
            else:
                self._loaded = _imported(self._target)
        return self._loaded


def pack_registry() -> bytes:
    """Return all registered environments, those adopted from another process included."""
    sent: dict[str, EnvSpec | bytes] = {}
    left_behind = dict(_left_behind)
    for name, spec in {**_adopted, **gym.registry}.items():
        try:
            late = _late(spec)
            plain = _is_plain(late.kwargs) and not late.additional_wrappers
            sent[name] = late if plain else cloudpickle.dumps(late)
        except Exception as error:
            left_behind[name] = f"{type(error).__name__}: {error}"
    return pickle.dumps((sent, left_behind))


def adopt_registry(packed: bytes) -> None:
    """Change environments that are registered otherwise here, and keep those that are not for later."""
    sent, left_behind = pickle.loads(packed)
    _left_behind.update(left_behind)
    for name, pickled in sent.items():
        try:
            spec = cloudpickle.loads(pickled) if isinstance(pickled, bytes) else pickled
        except Exception as error:  # what its arguments need is not here
            _left_behind[name] = f"{type(error).__name__}: {error}"
            continue
        here = gym.registry.get(name)
        if here is None:
            _adopted[name] = spec
        elif _differs(here, spec):
            gym.registry[name] = spec


def register_adopted() -> bool:
    """Register what was kept for later; return whether there was anything."""
    missing = [spec for name, spec in _adopted.items() if name not in gym.registry]
    for spec in missing:
        gym.registry[spec.id] = spec
    return bool(missing)


def explain_unregistered(error: Exception) -> None:
    """Add to the error of an environment that is not registered what to do."""
    add_note(
        error,
        "no package that was imported so far registers it; where one does, as ale_py does for ALE/..., "
        "import it in the script before the cage is made, or in the environment factory: "
        "def make(): import ale_py; return gymnasium.make(...)",
    )
    for name, why in _left_behind.items():
        add_note(error, f"{name} is registered in the main process, but could not be sent: {why}")


def _late(spec: EnvSpec) -> EnvSpec:
    """Return an equal spec that imports nothing of the user's when it is unpickled."""
    late = copy.copy(spec)
    for field in _ENTRY_POINTS:
        there = getattr(spec, field)
        if isinstance(there, str):
            if there.split(".")[0] != "gymnasium":
                setattr(late, field, LateEntryPoint(there))
        elif there is not None and not isinstance(there, LateEntryPoint):
            setattr(late, field, LateEntryPoint(cloudpickle.dumps(there)))
    return late


def _differs(here: EnvSpec, sent: EnvSpec) -> bool:
    """Return whether an environment is registered in another way than where it was sent from."""
    if any(callable(getattr(here, field)) for field in _ENTRY_POINTS):
        return False  # by code that has run here as well, as in a fork
    try:
        return bool(_late(here) != sent)
    except ValueError:  # arrays among its arguments
        return True


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(part) for part in [*value, *value.values()])
    if isinstance(value, (list, tuple)):
        return all(_is_plain(part) for part in value)
    return type(value) in (str, int, float, bool, bytes, type(None))


def _imported(target: str) -> Any:
    """Return what `module:name` means."""
    module, _, name = target.partition(":")
    # The module may register the same environments, and would be warned for each.
    taken = {known: gym.registry.pop(known) for known in _adopted if known in gym.registry}
    try:
        return getattr(import_module(module), name)
    finally:
        for known, spec in taken.items():
            gym.registry.setdefault(known, spec)
