"""Start of JAX on the CPU, and compiled functions that equal agents share."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import jax

from parllel.buffers.named_tuple import NamedTuple
from parllel.system.compilation import add_seconds_compiling

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
_MAX_KEPT = 64  # compiled functions by model and distribution
_SMALL = 200_000  # parameters, as for the threads of TorchHandler
# Variables that set the number of threads with which JAX computes on the CPU; it reads them when it starts.
_BY_ENVIRONMENT = ("PJRT_NPROC", "NPROC")


def start_jax(n_parameters: int) -> None:
    """Start JAX, unless it has started, with threads that suit a model of this size.

    With a thread for each core, JAX computes policy and value in two threads, which for small networks takes
    longer than one after the other. The number is per process, and cannot be changed later.
    """
    if n_parameters >= _SMALL or any(name in os.environ for name in _BY_ENVIRONMENT):
        return
    name = _BY_ENVIRONMENT[0]
    os.environ[name] = "1"
    try:
        jax.devices("cpu")
    finally:
        del os.environ[name]  # children decide for themselves


def kept(make: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Decorate a function that makes compiled functions to make them once for equal arguments.

    Agents with equal models share what has been compiled. Arguments without a hash are never found again.
    """
    remembered: Any = lru_cache(_MAX_KEPT)(make)

    @wraps(make)
    def found(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        try:
            hash((args, tuple(kwargs.values())))
        except TypeError:
            return make(*args, **kwargs)
        result: Returned = remembered(*args, **kwargs)
        return result

    return found


class CompileTimes:
    """Counts what JAX reports of tracing, lowering and compiling, for the time table of a run.

    A function that is traced within another is reported before it, and both durations cover the inner one.
    """

    def __init__(self) -> None:
        self._spans: deque[tuple[float, float]] = deque(maxlen=1000)  # begin, seconds

    def __call__(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event.startswith("/jax/core/compile/"):
            begin, inner = time.monotonic() - duration_secs, 0.0
            while self._spans and self._spans[-1][0] >= begin:
                inner += self._spans.pop()[1]
            self._spans.append((begin, duration_secs))
            add_seconds_compiling(duration_secs - inner)


def _register_trees() -> None:
    """Tell JAX that observations with several parts are trees."""

    def parts(node: NamedTuple) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
        return [(jax.tree_util.DictKey(n), v) for n, v in node._asdict().items()], node._fields

    def node(names: tuple[str, ...], values: Any) -> NamedTuple:
        return NamedTuple(**dict(zip(names, values, strict=True)))

    jax.tree_util.register_pytree_with_keys(NamedTuple, parts, node)


_register_trees()
jax.monitoring.register_event_duration_secs_listener(CompileTimes())
