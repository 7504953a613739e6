"""Start of processes without the user's main module and BLAS threads, from a private fork server.

    parent                                                child
    start_lean: ONE_THREAD in os.environ ------------->   libraries read it when they are imported
                no path of __main__ in the message ---->  the main script is not imported
                connect to our own ForkServer --------->  forked by a server without the user's modules

multiprocessing imports the parent's main script in every spawned child, which would import torch in every
worker of a training script. The cloudpickled payload contains everything that a child needs from `__main__`.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from multiprocessing import spawn
from typing import Any, Literal, TypeAlias

from parllel.errors import WorkerTimeoutError
from parllel.system.processes.fork_server import (
    START_S,
    fork_server,
    replaced_in_thread,
    sigint_held,
)

StartMethod: TypeAlias = Literal["fork", "forkserver", "spawn"]

# The variables of OpenMP, OpenBLAS, MKL, numexpr and Apple's Accelerate.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# Workers share the cores: with a thread per core in each, their small matrix products would mostly wait.
ONE_THREAD = dict.fromkeys(_THREAD_VARIABLES, "1")
# One start at a time, as each changes os.environ and functions of multiprocessing. Reentrant, as a forked
# child runs its target inside the parent's `with`, and may start its own children there.
_lock = threading.RLock()


def default_start_method() -> StartMethod:
    """Return "forkserver" if available, else "spawn": a plain fork inherits locks held by threads."""
    return "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


def check_start_method(method: str | None) -> StartMethod:
    """Return `method`, or the default for None. Raises ValueError if the platform does not have it."""
    if method is None:
        return default_start_method()
    known = multiprocessing.get_all_start_methods()
    if method not in known:
        raise ValueError(f"start_method: expected one of {known}, got {method!r}")
    return method  # type: ignore[return-value]


def start_lean(
    method: StartMethod,
    target: Callable[..., Any],
    args: tuple[Any, ...],
    timeout_s: float = START_S,
) -> Any:
    """Start `target(*args)` in a process; return the multiprocessing Process.

    timeout_s: time limit for starts in other threads, and then for the fork server, see
        `ForkServer.connect`.

    Raises:
        WorkerTimeoutError: if either takes longer.
    """
    context = multiprocessing.get_context(method)
    process = context.Process(target=target, args=args)  # type: ignore[attr-defined]
    # A daemonic process may not have children, but environments may start processes. `Child` ends the process
    # at exit, as multiprocessing would end a daemon.
    process.daemon = False
    # The fork server blocks SIGINT itself, for a shorter time, so that Ctrl-C can interrupt the wait for it.
    held = nullcontext() if method == "forkserver" else sigint_held(tracked=method == "spawn")
    # The variables must be set before the interpreter of a spawned child, or of the server, starts.
    with _one_start(timeout_s), _environment(ONE_THREAD), _patched_start(timeout_s), held:
        process.start()
    return process


def unchanged_environment(timeout_s: float = START_S) -> dict[str, str]:
    """Return a copy of os.environ, without temporary changes made while another thread starts a process.

    timeout_s: time limit for that start.

    Raises:
        WorkerTimeoutError: if it takes longer.
    """
    with _one_start(timeout_s):
        return dict(os.environ)


@contextmanager
def _one_start(timeout_s: float) -> Iterator[None]:
    if not _lock.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX)):
        raise WorkerTimeoutError(
            f"another thread has been starting a process for {timeout_s:g} s; only one can start at a time"
        )
    try:
        yield
    finally:
        _lock.release()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    # Visible to all threads meanwhile. What we copy for a child goes through
    # `unchanged_environment`.
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:  # was unset, which differs from empty
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _patched_start(timeout_s: float) -> Iterator[None]:
    """Replace two functions of multiprocessing during a start, in this thread only."""
    theirs = spawn.get_preparation_data

    def without_main(name: str) -> dict[str, Any]:
        data = theirs(name)
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
        return data

    with ExitStack() as stack:
        stack.enter_context(replaced_in_thread(spawn, "get_preparation_data", without_main))
        if sys.platform != "win32":  # Windows has no fork server, and importing the module fails
            from multiprocessing import forkserver

            def connect(fds: list[int]) -> tuple[int, int]:
                # Not multiprocessing's global server, which may preload the user's modules.
                return fork_server().connect(fds, timeout_s)

            stack.enter_context(replaced_in_thread(forkserver, "connect_to_new_process", connect))
        yield
