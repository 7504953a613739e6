"""Main function of a child process: set-up, target, report of its exception, end of its descendants.

    parent                                           child
    "liveness" pipe, which hangs up with it ------>  killed with its process group
    environment ---------------------------------->  run_child: set up
    target, arguments ---------------------------->  target(connection, ...)
    Child.receive <-- EXCEPTION + packed error ----  if the target raises

The parent imports this module only to refer to `run_child`, with which a child starts.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from parllel.system.processes.confinement import Confinement
from parllel.system.processes.exceptions import pack_exception
from parllel.system.processes.fork_server import leave_to_parent
from parllel.system.processes.launch import ONE_THREAD
from parllel.system.processes.liveness import kernel_guard, watch_parent
from parllel.system.processes.orphans import environment_mark, kill_own_descendants

NOT_CONFINED = 78  # exit code
EXCEPTION = b"\xff"  # the first byte of a reply that is a packed exception


def _use_one_thread() -> None:
    """Set torch to one thread: a forked child would wait for pool threads that only the parent has."""
    # Only a fork can have imported torch by now. Other children import it later, and then read ONE_THREAD.
    set_num_threads = getattr(sys.modules.get("torch"), "set_num_threads", None)
    if set_num_threads is not None:
        set_num_threads(1)


def _set_up(
    liveness: Connection | None,
    environ: dict[str, str] | None,
    mark: str,
    confinement: Confinement | None,
) -> None:
    if hasattr(os, "setpgid"):
        # A separate group: Ctrl-C in a terminal reaches only the parent, which then ends the child, and one
        # kill reaches all programs that the child has started.
        os.setpgid(0, 0)
    # After setpgid: the kernel will kill the group that the process has at this moment.
    guard = kernel_guard(liveness)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # blocked by `sigint_held` until now
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # A fork inherits the handler of the parent's script, which is meant only for the parent.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if confinement is not None:
        # Before the first thread, as existing threads would not be confined.
        _confine(confinement, guard)
    watch_parent(liveness, by_kernel=guard is not None)
    if environ is not None:  # the fork server has outdated variables
        leave_to_parent()
        os.environ.update(environ)
    os.environ.update(ONE_THREAD)
    os.environ.update(environment_mark(mark))
    _use_one_thread()


def _confine(confinement: Confinement, guard: int | None) -> None:
    try:
        confinement.enter([] if guard is None else [guard])
    except OSError as error:
        if confinement.probing:
            raise
        # Not sent as an exception: the parent of a confined child unpickles nothing from it.
        print(f"process {os.getpid()}: could not be confined: {error}", file=sys.stderr, flush=True)
        os._exit(NOT_CONFINED)


def run_child(
    connection: Connection,
    liveness: Connection | None,
    environ: dict[str, str] | None,
    mark: str,
    inherited: Any,
    confinement: Confinement | None = None,
) -> None:
    """Run the target of a child process, and send its exception to the parent.

    Args:
        connection: this end of the pipe to the parent.
        liveness: the pipe that hangs up when the parent ends; None on Windows.
        environ: the parent's environment variables; None if the child has them already.
        mark: name for `orphans.environment_mark`, inherited by all programs that this process starts.
        inherited: object passed by multiprocessing itself for the target, or None.
        confinement: entered before the target is unpickled.

    The first message contains target and arguments, pickled by cloudpickle.
    """
    try:
        _set_up(liveness, environ, mark, confinement)
        target, args = pickle.loads(connection.recv_bytes())
        more = {} if inherited is None else {"inherited": inherited}
        target(connection, *args, **more)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the parent has closed the pipe
            connection.send_bytes(EXCEPTION + pack_exception(error))
        if not isinstance(error, Exception):
            raise  # SystemExit keeps its exit code
    finally:
        # While they are still descendants: once this process has ended, the parent cannot tell whose they
        # were. This also runs if the parent dies: an idle child sees its pipe close, perhaps before the
        # kernel kills its group, which does not include programs in other sessions.
        kill_own_descendants()
        connection.close()
