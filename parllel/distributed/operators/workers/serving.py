"""Make this process a worker: answer the commands of its standard input until `stop`."""

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


def serve(
    agent: Any,
    env_factory: Callable[[], gym.Env[Any, Any]] | None = None,
    *,
    run_id: str | None = None,
    env_id: str | None = None,
    max_steps: int | None = None,
) -> int:
    """Answer commands until `stop`, the end of the input, or SIGTERM; return the status to exit with.

    What is printed in this process goes to its standard error from here on. A worker that prints while it
    loads its policy calls `take_streams` first.

    Args:
        agent: a WorkerAgent; a Policy, which acts as `play_episodes` lets it act; or a function that is given
            an observation and returns an action or a Decision. It is closed at the end.
        env_factory: makes the environment; None for a player of games alone.
        run_id: default the environment variable OPERATOR_RUN_ID.
        env_id: for the `ready` reply; default what the environment says.
        max_steps: of an episode, which is truncated then, unless a reset gives another number.
    """
    streams = take_streams()
    run_id = os.environ.get("OPERATOR_RUN_ID", "") if run_id is None else run_id
    arguments = {
        "env_factory": env_factory,
        "run_id": run_id,
        "env_id": env_id,
        "max_steps": max_steps,
    }

    def answer_all(runtime: InteractiveRuntime, came: list[int]) -> int:
        _answer_all(runtime, streams, came)
        return 0

    return run_loaded(agent, arguments, load_failed, answer_all)


def load_failed(error: BaseException, what: str = "policy") -> int:
    """Answer that a worker cannot start, because of `error`; return the status to exit with, 1."""
    print_traceback(error)
    message = f"Failed to load {what}: {error_text(error)}"
    with suppress(BrokenPipeError):
        take_streams().write(write_reply(ErrorReply(message=message)))
    return 1


def _answer_all(runtime: InteractiveRuntime, streams: ProtocolStreams, came: list[int]) -> None:
    read_line, answer, write = streams.read_line, runtime.answer, streams.write
    try:
        while not (runtime.ended or came):
            try:
                line = read_line()
            except MessageError as error:
                write(runtime.refusal(error))
                continue
            if line is None:
                return
            write(answer(line))
    except BrokenPipeError:
        return  # the driver is gone


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
    except TerminationSignal:
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
