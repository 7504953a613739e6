"""A process that acts for one agent: started, asked, ended at its deadline, replaced when needed again.

    this process                                    the agent's process (in_agent_process.py)
    start     --- brief, at its start --------->    executes the agent's code, answers [0, ...]
    act       --- [number, observations, ...] ->    calls the agent
    _await    <-- [number, answers] ------------
              <-- what is printed, by pipes and by shared memory, which is taken after each answer
    close     ---------------------------------X    at a deadline, or after an answer that makes no sense

One thread asks at a time; the lock is the caller's. `interrupt` alone may be called beside it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from parllel.distributed.remote.agent_settings import AgentSettings
from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.remote.in_agent_process import run_agent
from parllel.distributed.remote.output_pipes import OutputPipes
from parllel.distributed.remote.plain_values import plain
from parllel.distributed.remote.shared_text import SharedText
from parllel.distributed.wire.limits import Limits
from parllel.distributed.wire.message import decode, encode
from parllel.distributed.wire.wire_error import WireError
from parllel.errors import WorkerDiedError, WorkerTimeoutError
from parllel.system.counted_time import SLICE_S, counted_s
from parllel.system.processes.child import Child
from parllel.system.processes.fork_server import preload_in_forkserver
from parllel.system.processes.launch import unchanged_environment
from parllel.system.processes.pipe_end import PipeEnd
from parllel.types import Closeable

MAX_BYTES = 16 << 20  # of a reply
_LIMITS = Limits(nbytes=MAX_BYTES, items=2_000_000)

# Executed in the fork server, so that its modules are there when an agent starts.
preload_in_forkserver("parllel.distributed.remote.in_agent_process")


@dataclass(frozen=True)
class AgentCode:
    """What an agent's process executes.

    Attributes:
        kind: "file", "source" or "run".
        text: a path, or source.
        name: of what acts; None for the last that is defined.
        title: what messages call the agent.
    """

    kind: str
    text: str
    name: str | None
    title: str

    @property
    def folder(self) -> str | None:
        """The folder that belongs to the agent; None for source text."""
        if self.kind == "source":
            return None
        return self.text if self.kind == "run" else os.path.dirname(self.text)


class AgentProcess(Closeable):
    """The process of one agent.

    Args:
        code: what it executes.
        configuration: of the environment; sent again when it has changed.
        start_s: limit for starting it and executing the code.
        text_bytes: how much to keep of what it prints between two answers, for each of stdout and stderr.
        settings: what the process may use.

    Attributes:
        recurrent: whether it remembers episodes.

    Raises:
        ValueError: if the code cannot be executed, or defines nothing that acts.
        WorkerTimeoutError, WorkerDiedError: if it takes too long, or its process ends.
    """

    def __init__(
        self,
        code: AgentCode,
        configuration: Mapping[str, Any],
        *,
        start_s: float,
        text_bytes: int,
        settings: AgentSettings,
    ) -> None:
        self.code = code
        self.recurrent = False
        self._start_s, self._text_bytes = start_s, text_bytes
        self._settings = settings
        self._confinement = settings.confinement(code.folder)
        self._child: Child | None = None
        self.start(configuration)

    # ------------------------------------------------------------------ starting and ending

    @property
    def running(self) -> bool:
        """Whether there is a process that can be asked.

        Raises:
            ClosedError: in a forked copy of the process that started it: another one would begin anew.
        """
        if self._child is None:
            return False
        self._child.check_open()
        return self._child.alive

    def start(self, configuration: Mapping[str, Any]) -> None:
        """Start a process in place of one that has ended; the agent's code is executed from the beginning.

        Raises: as the constructor does.
        """
        self.close()
        brief = {
            **vars(self.code),
            "configuration": dict(configuration),
            "max_bytes": MAX_BYTES,
            "memory_limit_bytes": self._settings.memory_limit_bytes,
            "variables": list(self._settings.variables),
        }
        self._number = 0
        self._configuration = dict(configuration)
        self._text, self._pipes = SharedText(self._text_bytes), OutputPipes(self._text_bytes)
        try:
            self._child = Child(
                run_agent,
                (encode(brief),),
                inherited=(self._text, self._pipes.theirs),
                name=self.code.title,
                start_timeout_s=self._start_s,
                environment=self._settings.environment(unchanged_environment(self._start_s)),
                confinement=self._confinement,
            )
            self._poller = select.poll()
            self._pipes.started(self._poller)
            self._ready = {self._child.connection.fileno(), self._child.sentinel}
            for fd in self._ready:
                self._poller.register(fd, select.POLLIN)
            self._channel = PipeEnd(
                self._child.connection, self._child.sentinel, max_bytes=MAX_BYTES
            )
            self._check_first()
        except BaseException:
            self.close()
            raise

    def _check_first(self) -> None:
        assert self._child is not None
        doing = "when the agent's code was executed"
        try:
            first = self._read(self._start_s)
        except TimeoutError:
            raise WorkerTimeoutError(
                f"{self.code.title}: not ready within {self._start_s:g} s {doing}"
            ) from None
        except EOFError:
            raise WorkerDiedError(
                f"{self.code.title}: its process {self._child.exit_text()} {doing}"
            ) from None
        if len(first) != 2:
            kind, text = str(first[1]), str(first[2])
            name = "" if kind == "ValueError" else f"{kind}: "
            raise ValueError(f"{self.code.title}: {name}{text}")
        self.recurrent = bool(first[1])

    def close(self) -> None:
        """End the process at once; may be called twice."""
        child, self._child = self._child, None
        if child is not None:
            # Nothing is lost: children of a fork server run no exit functions anyway.
            child.kill()
        for name in ("_text", "_pipes"):
            output = self.__dict__.pop(name, None)
            if output is not None:
                output.close()

    def interrupt(self) -> None:
        """Kill the process while another thread waits for it, which then sees it die."""
        child = self._child
        # Only killed, and not ended: what belongs to the process is the other thread's to close.
        if child is not None and child.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)

    # ------------------------------------------------------------------ asking

    def act(
        self, observations: list[Any], configuration: Mapping[str, Any], seconds: float
    ) -> tuple[list[Any], bytes, bytes]:
        """Return an action or AgentFailure for each observation, and what was printed.

        The process must be running. After a deadline, or an answer that makes no sense, it has ended.
        """
        assert self._child is not None
        # Its answer has the same number: one that comes late, or is made up, must not be taken for another's.
        self._number += 1
        changed = None
        if _differs(configuration, self._configuration):
            changed = self._configuration = dict(configuration)
        try:
            request = encode([self._number, observations, changed])
        except WireError:  # of what plain values can be made, such as the members of an enumeration
            request = encode([self._number, [plain(seen) for seen in observations], changed])
        answers: list[Any] | AgentFailure
        try:
            self._channel.write(request, seconds)
            answers = self._checked(self._read(seconds), len(observations))
        except TimeoutError:
            answers = AgentFailure(
                "TIMEOUT", f"no action within {seconds:g} s; its process was ended"
            )
        except (EOFError, BrokenPipeError, ConnectionResetError):
            answers = AgentFailure("ERROR", f"its process {self._child.exit_text()}")
        except ValueError as error:
            answers = AgentFailure("ERROR", f"its process did not answer as it should: {error}")
        if isinstance(answers, AgentFailure):
            # Whatever it is doing, and may still write, belongs to no other act. What it has printed is
            # taken before that: the memory goes with the process.
            printed = self._printed()
            self.close()
            return [answers] * len(observations), *printed
        return answers, *self._printed()

    def _read(self, left_s: float) -> list[Any]:
        """Return the next message, and let the process print meanwhile.

        Raises:
            TimeoutError, EOFError, WireError, ValueError: see `act`.
        """
        while True:
            slice_s, began = max(min(left_s, SLICE_S), 0.0), monotonic()
            # For output as well: an agent that waits for room in a pipe would never answer.
            ready = {fd for fd, _ in self._poller.poll(slice_s * 1000)}
            left_s -= counted_s(began, slice_s)
            if not ready <= self._ready:
                self._pipes.drain(ready, self._poller)
            if ready & self._ready:
                message = decode(self._channel.read(max(left_s, 0.0)), _LIMITS)
                if type(message) is not list or len(message) < 2 or message[0] != self._number:
                    raise ValueError("expected the answer to what it was asked")
                return message
            if left_s <= 0:
                raise TimeoutError

    def _checked(self, message: list[Any], n: int) -> list[Any]:
        """Return the answers of a message, which may come from any code in the process."""
        _, given = message
        if type(given) is not list or len(given) != n:
            raise ValueError(f"expected {n} answers")
        answers: list[Any] = []
        for answer in given:
            if type(answer) is list and len(answer) == 1:
                answers.append(plain(answer[0]))
            elif type(answer) is list and len(answer) == 2 and all(type(a) is str for a in answer):
                answers.append(AgentFailure(*answer))
            else:
                raise ValueError("expected an action or a failure")
        return answers

    def _printed(self) -> tuple[bytes, bytes]:
        """Return what was printed since the last answer."""
        # Not waited for: what was written before the answer is in the pipes by now.
        ready = {fd for fd, _ in self._poller.poll(0)}
        if not ready <= self._ready:
            self._pipes.drain(ready, self._poller)
        (out, error), (more_out, more_error) = self._text.take(), self._pipes.take()
        return out + more_out, error + more_error


def _differs(configuration: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    try:
        return bool(configuration != known)
    except ValueError:  # of arrays: one that is not the same object has to be sent
        return True
