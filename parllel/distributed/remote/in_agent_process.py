"""Main function of an agent's process: executes the agent's code once, then acts until the pipe closes::

    parent                                           this process
    brief: code, limits ------------------------>    set up, execute, answer whether there is an agent
    [number, observations, configuration] ------>    call the agent for each observation
    <----- [number, answers]                         an answer is [action] or [status, reason]
    SharedText <-- output of Python's print          (survives a kill at any moment)
    OutputPipes <- output of C code and programs

Messages use `parllel.distributed.wire` in both directions: whatever the agent's code writes to the pipe is
data that the parent checks, never a pickle.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import linecache
import os
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from parllel.distributed.remote.agent_settings import AgentSettings
from parllel.distributed.remote.call_agent import ask, failure_of, number_of_arguments
from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.remote.policy_call import PolicyCall
from parllel.distributed.remote.shared_text import SharedText
from parllel.distributed.wire.limits import Limits
from parllel.distributed.wire.message import decode, encode
from parllel.policies.policy import Policy
from parllel.policies.policy_file import policy_in_file, policy_in_module
from parllel.policies.policy_loading import load_policy
from parllel.policies.specification import policy_of
from parllel.system.processes.orphans import environment_mark

_SOURCE = "<agent>"
_TRUSTED = Limits(nbytes=1 << 31, items=1 << 31)  # for messages from the parent
Answers = Callable[[list[Any], dict[str, Any]], list[Any]]


def run_agent(
    connection: Connection, message: bytes, inherited: tuple[SharedText, tuple[Connection, ...]]
) -> None:
    """Execute the agent's code and act until the pipe closes.

    message: contains `kind`, `text` (path or source), `name` (of the function, or None), `configuration`,
        `memory_limit_bytes` (or None), `variables` (patterns to keep) and `max_bytes` (of a reply).
    inherited: destination of the agent's output.
    """
    pid = os.getpid()
    brief = decode(message, _TRUSTED)
    output = _AgentOutput(*inherited)
    # A fork server passes only these variables; elsewhere a child inherits all of its parent's, among which
    # may be the token of a server. Removed before any code of the agent runs.
    kept = AgentSettings(variables=(*brief["variables"], *environment_mark("")))
    for name in os.environ.keys() - kept.environment(os.environ).keys():
        del os.environ[name]
    _limit_memory(brief["memory_limit_bytes"])
    # Kept, because the agent's code may replace sys.stderr.
    errors = sys.stderr
    try:
        answers, recurrent = _load(brief)
        first: list[Any] = [0, recurrent]
    except BaseException as error:
        first = [0, *_problem(error, errors)]
    # The agent's code may fork, and the copy return here too. Only the original may use the pipe.
    if os.getpid() != pid:
        os._exit(0)
    connection.send_bytes(encode(first))
    if len(first) == 2:
        _serve(connection, answers, brief, output)


def _serve(
    connection: Connection, answers: Answers, brief: dict[str, Any], output: _AgentOutput
) -> None:
    pid = os.getpid()
    configuration, max_bytes = brief["configuration"], brief["max_bytes"]
    while True:
        try:
            message = connection.recv_bytes()
        # The parent has closed the pipe, or died: nothing is left to do.
        except (EOFError, OSError):
            return
        number, observations, changed = decode(message, _TRUSTED)
        if changed is not None:
            configuration = changed
        output.begin()
        made = answers(observations, configuration)
        if os.getpid() != pid:  # as above
            os._exit(0)
        # Before the answer, since the parent collects output when it arrives: later output would be taken for
        # that of the next act.
        output.flush()
        connection.send_bytes(_reply(number, made, max_bytes))


def _reply(number: int, made: list[Any], max_bytes: int) -> bytes:
    answers = [
        [answer.status, answer.reason] if isinstance(answer, AgentFailure) else [answer]
        for answer in made
    ]
    message = encode([number, answers])
    # The parent would refuse a larger reply and kill this process.
    if len(message) > max_bytes:
        failure = ["INVALID", f"returned more than {max_bytes} bytes"]
        message = encode([number, [failure] * len(made)])
    return message


def _limit_memory(nbytes: int | None) -> None:
    if nbytes is None:
        return
    import resource

    # On Linux RLIMIT_DATA counts private writable memory, mapped memory included. RLIMIT_AS would also count
    # libraries and reserved address space, which is gigabytes for torch alone.
    limit = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    resource.setrlimit(limit, (nbytes, nbytes))


# ---------------------------------------------------------------------- the agent's code


def _load(brief: dict[str, Any]) -> tuple[Answers, bool]:
    """Execute the code. Returns a function that answers a batch, and whether the agent is recurrent."""
    kind, text, name = brief["kind"], brief["text"], brief["name"]
    if kind == "run":
        thing: Any = load_policy(text)
    elif kind == "file":
        file = Path(text)
        # First in the path, as when Python runs a script: modules next to the file precede installed ones.
        sys.path.insert(0, str(file.resolve().parent))
        thing = policy_in_file(file, name)
    else:
        thing = policy_in_module(_module_of(text), _SOURCE, name)
    if isinstance(thing, type) and issubclass(thing, Policy):
        thing = policy_of(thing)
    if isinstance(thing, Policy):
        call = PolicyCall(thing)
        return lambda observations, _: call.answers(observations, sys.stderr), thing.recurrent
    n_arguments = number_of_arguments(thing)

    def answers(observations: list[Any], configuration: dict[str, Any]) -> list[Any]:
        return [
            _answer(thing, n_arguments, observation, configuration) for observation in observations
        ]

    return answers, False


def _answer(thing: Any, n_arguments: int, observation: Any, configuration: dict[str, Any]) -> Any:
    try:
        return ask(thing, n_arguments, observation, configuration, sys.stderr)
    except KeyboardInterrupt as error:
        # Raised by the agent's own code: nobody sends SIGINT to this process.
        return failure_of(error, sys.stderr)


def _module_of(source: str) -> ModuleType:
    module = ModuleType("parllel_agent")
    sys.modules[module.__name__] = module  # required by dataclasses and pickle
    # Gives tracebacks the source lines.
    linecache.cache[_SOURCE] = (len(source), None, source.splitlines(keepends=True), _SOURCE)
    exec(compile(source, _SOURCE, "exec"), vars(module))
    return module


def _problem(error: BaseException, errors: TextIO) -> tuple[str, str]:
    """Return class and text of an exception of the agent's code."""
    failure = failure_of(error, errors)
    kind, _, text = failure.reason.partition(": ")
    return kind, text


class _AgentOutput:
    """Redirects the output of this process to its parent::

        print, sys.stdout, sys.stderr    -> SharedText, without a system call
        descriptors 1 and 2              -> OutputPipes: output of C code and other programs
        descriptor 0                     <- empty

    Args:
        text: receives Python's output.
        pipes: replace the descriptors of standard output and standard error.
    """

    def __init__(self, text: SharedText, pipes: Sequence[Connection]) -> None:
        text.map()
        self._text = text
        # Descriptors 1 and 2 keep the pipes open. Without this close, the parent would not see their end when
        # an agent closes both.
        for fd, pipe in enumerate(pipes, 1):
            os.dup2(pipe.fileno(), fd)
            pipe.close()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        self._texts = [self._made(0), self._made(1)]
        self._flush_c = ctypes.CDLL(None).fflush
        self.begin()

    def _made(self, part: int) -> TextIO:
        raw: Any = _Printed(self._text, part)
        return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)

    def begin(self) -> None:
        """Restore sys.stdout and sys.stderr, which the agent's code may have replaced or closed."""
        for part, text in enumerate(self._texts):
            # The same object as long as it is open, because loggers keep a reference to it.
            if text.closed:
                self._texts[part] = self._made(part)
        sys.stdout, sys.stderr = self._texts

    def flush(self) -> None:
        """Flush Python's streams and the buffers of C's standard library."""
        for text in self._texts:
            with contextlib.suppress(ValueError):  # closed by the agent
                text.flush()
        self._flush_c(None)


class _Printed(io.RawIOBase):
    def __init__(self, text: SharedText, part: int) -> None:
        self._text, self._part = text, part

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._part + 1  # for subprocesses of the agent, which write to the descriptor

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._text.write(self._part, view)
        return len(view)  # including what was dropped: printing too much is not an error
