"""Serving loop of a worker: answers commands on standard input until `stop`.

driver    commands  -->  ProtocolStreams.read_line  -->  InteractiveRuntime.answer
          replies   <--  ProtocolStreams.write
          SIGTERM   -->  TerminationSignal, raised in whatever runs; environment and agent are closed
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gymnasium as gym

from parllel.distributed.operators.protocol.message_lines import MessageError, write_reply
from parllel.distributed.operators.protocol.messages import ErrorReply
from parllel.distributed.operators.protocol.protocol_streams import ProtocolStreams, take_streams
from parllel.distributed.operators.workers.interactive_runtime import (
    InteractiveRuntime,
    error_text,
    print_traceback,
)
from parllel.distributed.operators.workers.termination_signal import (
    TerminationSignal,
    sigterm_raises,
)
from parllel.system.start_program import forget_interrupt


def serve(
    agent: Any,
    env_factory: Callable[[], gym.Env[Any, Any]] | None = None,
    *,
    run_id: str | None = None,
    env_id: str | None = None,
    max_steps: int | None = None,
) -> int:
    """Answer commands until `stop`, the end of the input, or SIGTERM. Returns the exit status.

    From here on, everything printed in this process goes to its standard error. A worker that prints while it
    loads its policy must call `take_streams` first.

    Args:
        agent: a WorkerAgent; a Policy, which acts as in `play_episodes`; or a function that takes
            an observation and returns an action or a Decision. The agent is closed at the end.
        env_factory: function that makes the environment. None for a worker that only plays games.
        run_id: id of this run. Default: the environment variable OPERATOR_RUN_ID.
        env_id: id for the `ready` reply. Default: the id of the environment.
        max_steps: number of steps after which episodes are truncated, unless a reset sets another
            limit.
    """
    streams = take_streams()
    run_id = os.environ.get("OPERATOR_RUN_ID", "") if run_id is None else run_id
    arguments = {
        "env_factory": env_factory,
        "run_id": run_id,
        "env_id": env_id,
        "max_steps": max_steps,
    }

    def answer_all(runtime: InteractiveRuntime, signals: list[int]) -> int:
        _answer_all(runtime, streams, signals)
        return 0

    return run_loaded(agent, arguments, load_failed, answer_all)


def load_failed(error: BaseException, what: str = "policy") -> int:
    """Reply that a worker cannot start because of `error`. Returns the exit status, 1."""
    print_traceback(error)
    message = f"Failed to load {what}: {error_text(error)}"
    # Unasked: the driver takes an error before the first command as the reply to that command.
    with suppress(BrokenPipeError):
        take_streams().write(write_reply(ErrorReply(message=message)))
    return 1


def _answer_all(runtime: InteractiveRuntime, streams: ProtocolStreams, signals: list[int]) -> None:
    read_line, answer, write = streams.read_line, runtime.answer, streams.write
    try:
        # `signals`: the exception of a SIGTERM may have been swallowed inside `answer`.
        while not (runtime.ended or signals):
            try:
                line = read_line()
            except MessageError as error:
                # An overlong line. It was consumed, so the next command can be read.
                write(runtime.refusal(error))
                continue
            if line is None:
                return  # the driver has closed our input: the same as `stop`
            write(answer(line))
    except BrokenPipeError:
        return  # the driver is gone


def run_loaded(
    agent: Any,
    arguments: dict[str, Any],
    failed: Callable[[BaseException, str], int],
    work: Callable[[InteractiveRuntime, list[int]], int],
) -> int:
    """Load an environment and an agent, work with them, and close both. Returns the exit status.

    Args:
        agent, arguments: arguments of the InteractiveRuntime.
        failed: function that reports an error and which of the two failed to load. It returns the
            exit status.
        work: function called with the runtime, and with a list that is non-empty once SIGTERM has
            arrived. It returns the exit status.
    """
    try:
        runtime = InteractiveRuntime(agent, **arguments)
    except TypeError as error:  # `agent` is nothing that can act
        return failed(error, "policy")
    try:
        with sigterm_raises() as signals:
            for what, load in (("environment", runtime.make_env), ("policy", runtime.bind)):
                try:
                    load()
                # SystemExit too: a script that calls `exit` has failed to load.
                except (Exception, SystemExit) as error:
                    return failed(error, what)
            status = work(runtime, signals)
            return 128 + signal.SIGTERM if signals else status
    except TerminationSignal:
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        forget_interrupt()
        return 128 + signal.SIGINT
    finally:
        # Whatever ended the work. The exit status is decided by now, and an error here does not change it.
        _close(runtime)


def _close(runtime: InteractiveRuntime) -> None:
    try:
        runtime.close()
    except (Exception, SystemExit) as error:
        print_traceback(error)
