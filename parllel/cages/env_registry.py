"""Transfer of Gymnasium's registry to worker processes, which do not run the script that filled it.

    main process                                     worker
    import ale_py: fills gymnasium's registry
    pack_registry() -------- when the cage starts -------> adopt_registry(packed), unless it is a fork
                                                     gymnasium.make("ALE/Pong-v5"): not registered
                                                     register_adopted(), then make it again

The worker registers the environments only after `make` has failed. Otherwise, if the factory imports the
package itself, Gymnasium would warn for each environment of it that it is already registered.
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
# Environments that the main process has registered and this process has not, until `register_adopted`.
_adopted: dict[str, EnvSpec] = {}
# Environments that could not be pickled, with the reason, for error messages.
_not_sent: dict[str, str] = {}


class RegistryTarget:
    """Target function for a child process, which first adopts the environment registry of its parent."""

    def __init__(self, target: Callable[..., None]) -> None:
        self._target = target
        self._packed: bytes | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self._packed is not None:  # a fork has the registry itself
            adopt_registry(self._packed)
        self._target(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        # Packed when the first child is started; further children get the same bytes.
        if self._packed is None:
            self._packed = pack_registry()
        return vars(self)


class LateEntryPoint:
    """Entry point that is unpickled or imported on first use.

    A registry may hold hundreds of environments. A worker should import only the package of the one it needs.
    """

    def __init__(self, target: str | bytes) -> None:
        self._target = target
        self._loaded: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._load()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Pickling and copying look for special methods, and must not load the target.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._load(), name)

    # Compared by the packed target: workers compare specs, and that must not import packages.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, LateEntryPoint) and self._target == other._target

    def __hash__(self) -> int:
        return hash(self._target)

    def __reduce__(self) -> Any:
        # Without the loaded object, so that a child of this process receives it unloaded too.
        return LateEntryPoint, (self._target,)

    def _load(self) -> Any:
        if self._loaded is None:
            if isinstance(self._target, bytes):
                self._loaded = cloudpickle.loads(self._target)
            else:
                self._loaded = _imported(self._target)
        return self._loaded


def pack_registry() -> bytes:
    """Pickle all registered environments, including any adopted from another process."""
    # Each separately, so that one that cannot be pickled does not affect the others.
    sent: dict[str, EnvSpec | bytes] = {}
    # Including those that this process did not receive: a worker of a worker explains them too.
    not_sent = dict(_not_sent)
    for name, spec in {**_adopted, **gym.registry}.items():
        try:
            late = _late(spec)
            # Most are plain, and pickle takes half the time of cloudpickle; registries may hold hundreds.
            plain = _is_plain(late.kwargs) and not late.additional_wrappers
            sent[name] = late if plain else cloudpickle.dumps(late)
        except Exception as error:
            not_sent[name] = f"{type(error).__name__}: {error}"
    return pickle.dumps((sent, not_sent))


def adopt_registry(packed: bytes) -> None:
    """Adopt a parent's registry: replace environments that differ here, and keep unknown ones for later."""
    sent, not_sent = pickle.loads(packed)
    _not_sent.update(not_sent)
    for name, pickled in sent.items():
        try:
            spec = cloudpickle.loads(pickled) if isinstance(pickled, bytes) else pickled
        except Exception as error:  # its arguments need a module that cannot be imported here
            _not_sent[name] = f"{type(error).__name__}: {error}"
            continue
        here = gym.registry.get(name)
        if here is None:
            # Registered only after `make` has failed; see the module docstring.
            _adopted[name] = spec
        elif _differs(here, spec):
            gym.registry[name] = spec


def register_adopted() -> bool:
    """Register the adopted environments; return whether there were any."""
    missing = [spec for name, spec in _adopted.items() if name not in gym.registry]
    for spec in missing:
        # Not with `gymnasium.register`, which would repeat checks that the main process has passed.
        gym.registry[spec.id] = spec
    return bool(missing)


def explain_unregistered(error: Exception) -> None:
    """Add a note on the missing import to the error for an unregistered environment."""
    add_note(
        error,
        "no package imported so far registers it; if one does, as ale_py does for ALE/..., "
        "import it in the script before the cage is made, or in the environment factory: "
        "def make(): import ale_py; return gymnasium.make(...)",
    )
    for name, why in _not_sent.items():
        add_note(error, f"{name} is registered in the main process, but could not be sent: {why}")


def _late(spec: EnvSpec) -> EnvSpec:
    """Return an equal spec that imports none of the user's packages when unpickled."""
    late = copy.copy(spec)
    for field in _ENTRY_POINTS:
        there = getattr(spec, field)
        if isinstance(there, str):
            # Gymnasium's own are registered everywhere as soon as gymnasium is imported.
            if there.split(".")[0] != "gymnasium":
                setattr(late, field, LateEntryPoint(there))
        elif there is not None and not isinstance(there, LateEntryPoint):
            setattr(late, field, LateEntryPoint(cloudpickle.dumps(there)))
    return late


def _differs(here: EnvSpec, sent: EnvSpec) -> bool:
    """Return whether an environment is registered differently here than in the process that sent it."""
    # A callable here was registered by code that ran in this process too, as in a fork.
    if any(callable(getattr(here, field)) for field in _ENTRY_POINTS):
        return False
    try:
        return bool(_late(here) != sent)
    except ValueError:  # comparing arrays among its arguments
        return True


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(part) for part in [*value, *value.values()])
    if isinstance(value, (list, tuple)):
        return all(_is_plain(part) for part in value)
    # Exact types: a subclass would be pickled by reference to a module that the worker may not have.
    return type(value) in (str, int, float, bool, bytes, type(None))


def _imported(target: str) -> Any:
    """Import the object of an entry point `module:name`."""
    module, _, name = target.partition(":")
    # Importing the module may register the same environments, and Gymnasium would warn for each.
    taken = {known: gym.registry.pop(known) for known in _adopted if known in gym.registry}
    try:
        return getattr(import_module(module), name)
    finally:
        # What the module has just registered is more recent and wins.
        for known, spec in taken.items():
            gym.registry.setdefault(known, spec)
