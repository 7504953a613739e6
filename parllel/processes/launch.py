"""Starting interpreters lean: without the user's main module, without threads of BLAS.

multiprocessing imports the parent's main script into every child that it spawns. A training script would
pull torch into every worker that way, so it is told not to; what a child needs from
`__main__` travels inside the cloudpickled payload. Children of the forkserver come from a server of our own.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import spawn
from typing import Any, Literal, TypeAlias

from parllel.processes.fork_server import fork_server

StartMethod: TypeAlias = Literal["fork", "forkserver", "spawn"]

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
ONE_THREAD = dict.fromkeys(_THREAD_VARIABLES, "1")
_lock = threading.RLock()


def default_start_method() -> StartMethod:
    """Return forkserver where it exists (fork and threads do not mix), else spawn."""
    return "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


def check_start_method(method: str | None) -> StartMethod:
    """Return a usable start method; ValueError names those that this platform has."""
    if method is None:
        return default_start_method()
    known = multiprocessing.get_all_start_methods()
    if method not in known:
        raise ValueError(f"start_method: expected one of {known}, got {method!r}")
    return method  # type: ignore[return-value]


def start_lean(method: StartMethod, target: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Start a process and return it (a multiprocessing Process)."""
    context = multiprocessing.get_context(method)
    process = context.Process(target=target, args=args)  # type: ignore[attr-defined]
    # Not daemonic, as an environment may start processes of its own; we end our children ourselves.
    process.daemon = False
    with _lock, _environment(ONE_THREAD), _own_rules():
        process.start()
    return process


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _own_rules() -> Iterator[None]:
    """Bend two functions of multiprocessing, for this thread and the time of one start only."""
    thread = threading.get_ident()
    theirs = spawn.get_preparation_data

    def without_main(name: str) -> dict[str, Any]:
        data = theirs(name)
        if threading.get_ident() == thread:
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    spawn.get_preparation_data = without_main  # type: ignore[assignment]
    try:
        with _own_forkserver(thread):
            yield
    finally:
        spawn.get_preparation_data = theirs


@contextmanager
def _own_forkserver(thread: int) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    from multiprocessing import forkserver

    theirs = forkserver.connect_to_new_process

    def connect(fds: list[int]) -> Any:
        if threading.get_ident() != thread:
            return theirs(fds)
        return fork_server().connect(fds)

    forkserver.connect_to_new_process = connect  # type: ignore[assignment]
    try:
        yield
    finally:
        forkserver.connect_to_new_process = theirs
