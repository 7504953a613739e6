"""What serving and playing by itself have in common: load, work, close, and the status to exit with."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from parllel.distributed.operators.workers.interactive_runtime import (
    InteractiveRuntime,
    print_traceback,
)
from parllel.distributed.operators.workers.terminated import Terminated, sigterm_raises


def run_loaded(
    agent: Any,
    arguments: dict[str, Any],
    failed: Callable[[BaseException, str], int],
    work: Callable[[InteractiveRuntime, list[int]], int],
) -> int:
    """Load an environment and an agent, work with them, and close both; return the status to exit with.

    Args:
        agent, arguments: of the InteractiveRuntime.
        failed: reports why something cannot be loaded, and which; returns the status.
        work: is given the runtime, and a list that is no longer empty once SIGTERM came; returns the status.
    """
    try:
        runtime = InteractiveRuntime(agent, **arguments)
    except TypeError as error:  # what cannot be an agent
        return failed(error, "policy")
    try:
        with sigterm_raises() as came:
            for what, load in (("environment", runtime.make_env), ("policy", runtime.bind)):
                try:
                    load()
                except (Exception, SystemExit) as error:
                    return failed(error, what)
            status = work(runtime, came)
            return 128 + signal.SIGTERM if came else status
    except Terminated:
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        _close(runtime)


def _close(runtime: InteractiveRuntime) -> None:
    try:
        runtime.close()
    except (Exception, SystemExit) as error:
        print_traceback(error)
