"""What a child does before and after its target: be a group, end with the parent, say what went wrong."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from parllel.processes.exceptions import pack_exception
from parllel.processes.fork_server import leave_to_parent
from parllel.processes.launch import ONE_THREAD
from parllel.processes.liveness import end_with_parent
from parllel.processes.orphans import environment_mark, kill_own_descendants

EXCEPTION = b"\xff"  # the first byte of a reply that is a packed exception


def _use_one_thread() -> None:
    """Let torch, which only a fork can have here, wait for no threads: those of its pool are the parent's."""
    set_num_threads = getattr(sys.modules.get("torch"), "set_num_threads", None)
    if set_num_threads is not None:
        set_num_threads(1)


def _set_up(liveness: Connection | None, environ: dict[str, str] | None, mark: str) -> None:
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # Ctrl-C goes to the parent, which ends us; kills reach grandchildren
    end_with_parent(liveness)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if environ is not None:  # from a fork server, which is older than this environment
        leave_to_parent()
        os.environ.update(environ)
    os.environ.update(ONE_THREAD)
    os.environ.update(environment_mark(mark))
    _use_one_thread()


def run_child(
    connection: Connection,
    liveness: Connection | None,
    environ: dict[str, str] | None,
    mark: str,
    payload: bytes,
    inherited: Any,
) -> None:
    """Be the child: run the target, report what it raises.

    Args:
        connection, liveness: this end of the pipe, and the pipe that hangs up when the parent ends.
        environ: the variables of the parent; None if they are there already.
        mark: what programs are marked with that this process starts.
        payload, inherited: target and arguments, by cloudpickle, and what comes by multiprocessing.
    """
    try:
        _set_up(liveness, environ, mark)
        target, args = pickle.loads(payload)
        more = {} if inherited is None else {"inherited": inherited}
        target(connection, *args, **more)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the parent no longer listens
            connection.send_bytes(EXCEPTION + pack_exception(error))
        if not isinstance(error, Exception):
            raise  # SystemExit keeps its exit code
    finally:
        # An idle child hears of the end of its parent by its pipe, perhaps before the kernel kills its group.
        kill_own_descendants()
        connection.close()
