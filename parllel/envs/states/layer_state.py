"""How the state of one layer is saved: one environment, or one wrapper around it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from parllel.envs.states.plain_values import freeze, thaw
from parllel.types import State


class NoStateError(Exception):
    """The state of a layer cannot be saved. The message says why."""


class LayerState(Protocol):
    """Saves and loads the state of layers of one class, without the state of the layers inside them."""

    def state(self, layer: Any) -> State:
        """Return the state. Raises NoStateError if it cannot be saved."""

    def load_state(self, layer: Any, state: State) -> None:
        """Load a state into a new layer. Raises TypeError, ValueError or KeyError for an invalid state."""


class NumericAttribute(NamedTuple):
    """A kind of attribute: an array, list or tuple of numbers in this shape, or None."""

    shape: tuple[int, ...]


# A class, a union of classes, or Numbers.
Kind: TypeAlias = Any


class AttributeState:
    """Saves and loads the state of layers that keep their whole state in attributes.

    Args:
        kinds: the kind of value of each attribute, keyed by its name or dotted path. Attributes
            that a layer does not have (yet) are left out of its state.
    """

    def __init__(self, kinds: Mapping[str, Kind] | None = None) -> None:
        self.kinds = dict(kinds or {})

    def state(self, layer: Any) -> State:
        """Return the existing attributes, keyed by path."""
        state = {}
        for path in self.kinds:
            holder, name = _holder_of(layer, path)
            # Not getattr: it would find attributes of the class, and of an environment further in.
            if name in vars(holder):
                try:
                    state[path] = freeze(vars(holder)[name], path)
                except TypeError as error:
                    raise NoStateError(str(error)) from error
        return state

    def load_state(self, layer: Any, state: State) -> None:
        """Set the attributes. Queues are refilled in place, so they keep their maximum length."""
        for path, frozen in state.items():
            if path not in self.kinds:
                raise ValueError(f"expected attributes {sorted(self.kinds)}, got {path!r}")
            value = thaw(frozen)
            holder, name = _holder_of(layer, path)
            now = vars(holder).get(name)
            _check(path, self.kinds[path], value, now)
            if isinstance(now, deque):
                now.clear()
                now.extend(value)
            else:
                setattr(holder, name, value)


def _holder_of(layer: Any, path: str) -> tuple[Any, str]:
    *owners, name = path.split(".")
    return (attrgetter(".".join(owners))(layer) if owners else layer), name


def _check(path: str, kind: Kind, value: Any, now: Any) -> None:
    """Raise ValueError if `value` is not of its kind, or of another shape than what is there now."""
    if isinstance(kind, NumericAttribute):
        # None before the first reset.
        fits = value is None or (
            np.shape(value) == kind.shape and np.asarray(value).dtype.kind in "fiu"
        )
    else:
        fits = isinstance(value, kind)
    if not fits:
        raise ValueError(f"{path}: expected {kind}, got {value!r}")
    if isinstance(now, deque):
        longest = len(value) if now.maxlen is None else now.maxlen
        # A queue never gets shorter than that of a new wrapper.
        if not len(now) <= len(value) <= longest:
            raise ValueError(f"{path}: expected {len(now)} to {longest} parts, got {len(value)}")
        for one, other in zip(now, value, strict=False):
            check_shape(path, one, other)
    else:
        check_shape(path, now, value)


def check_shape(path: str, now: Any, value: Any) -> None:
    """Raise ValueError if an array in `now` differs in shape from its counterpart in `value`."""
    if isinstance(now, np.ndarray) and np.shape(value) != now.shape:
        raise ValueError(f"{path}: expected shape {now.shape}, got {np.shape(value)}")
    if isinstance(now, (list, tuple)) and any(isinstance(part, np.ndarray) for part in now):
        if not isinstance(value, type(now)) or len(value) != len(now):
            raise ValueError(f"{path}: expected {len(now)} parts, got {value!r}")
        for one, other in zip(now, value, strict=True):
            check_shape(path, one, other)
