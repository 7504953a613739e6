"""Process of one agent: started, called, killed at its deadline, and restarted on demand::

    this process                                    the agent's process (in_agent_process.py)
    start     --- brief, at its start --------->    executes the agent's code, answers [0, ...]
    act       --- [number, observations, ...] ->    calls the agent
    _read     <-- [number, answers] ------------
              <-- output, by pipes and by shared memory, collected after each answer
    close     ---------------------------------X    SIGKILL, at a deadline or after an invalid answer

One thread at a time calls these methods, under the lock of `Agent`; other threads only call `interrupt`.
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

# Imported in the fork server, so that an agent's process starts with its modules loaded.
preload_in_forkserver("parllel.distributed.remote.in_agent_process")


@dataclass(frozen=True)
class AgentCode:
    """Code of an agent, executed in its process.

    Attributes:
        kind: "file", "source" or "run".
        text: a path, or source text.
        name: name of the function or class that acts; None for the last one defined.
        title: name of the agent in messages.
    """

    kind: str
    text: str
    name: str | None
    title: str

    @property
    def folder(self) -> str | None:
        """Folder of the agent's files; None for source text."""
        if self.kind == "source":
            return None
        return self.text if self.kind == "run" else os.path.dirname(self.text)


class AgentProcess(Closeable):
    """Process that executes the code of one agent.

    Args:
        code: the agent's code.
        configuration: configuration of the environment. It is sent again when it changes.
        start_s: time limit for starting the process and executing the code, in seconds.
        text_bytes: number of bytes of output to keep between two answers, separately for stdout and
            stderr.
        settings: permissions and limits of the process.

    Attributes:
        recurrent: whether the agent keeps state during an episode.

    Raises:
        ValueError: if the code fails, or defines no function or class that acts.
        WorkerTimeoutError, WorkerDiedError: if the code takes too long, or its process exits.
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
        """Whether the process is alive.

        Raises:
            ClosedError: in a fork of the process that started it, which must not start another.
        """
        if self._child is None:
            return False
        self._child.check_open()
        return self._child.alive

    def start(self, configuration: Mapping[str, Any]) -> None:
        """Start a new process, which executes the agent's code from the beginning.

        Raises the same errors as the constructor.
        """
        # Also forgets the pipes and the shared memory of a process that died on its own.
        self.close()
        brief = {
            **vars(self.code),
            "configuration": dict(configuration),
            "max_bytes": MAX_BYTES,
            "memory_limit_bytes": self._settings.memory_limit_bytes,
            "variables": list(self._settings.variables),
        }
        # The answer about the start has number 0; acts count from 1 in each process.
        self._number = 0
        self._configuration = dict(configuration)
        # New ones for each process: programs that an earlier agent started may still write to the old ones.
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
            # After the start, when the child has its ends: ours are closed, so that its death ends the pipes.
            self._pipes.started(self._poller)
            # Readable when there is an answer, or when the process has died; all else polled is output.
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
        # [0, recurrent] when ready, [0, class, text] of the exception otherwise.
        if len(first) != 2:
            kind, text = str(first[1]), str(first[2])
            name = "" if kind == "ValueError" else f"{kind}: "
            raise ValueError(f"{self.code.title}: {name}{text}")
        self.recurrent = bool(first[1])

    def close(self) -> None:
        """Kill the process. Idempotent."""
        child, self._child = self._child, None
        if child is not None:
            # Killing loses nothing: children of a fork server run no exit functions anyway.
            child.kill()
        # Absent if `start` failed before it created them.
        for name in ("_text", "_pipes"):
            output = self.__dict__.pop(name, None)
            if output is not None:
                output.close()

    def interrupt(self) -> None:
        """Kill the process while another thread waits for its answer; that read fails with EOF."""
        child = self._child
        # Only the signal is sent from here: the waiting thread still reads the pipes, and closes them itself.
        if child is not None and child.alive:
            # The whole group, with the programs that the agent has started.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)

    # ------------------------------------------------------------------ asking

    def act(
        self, observations: list[Any], configuration: Mapping[str, Any], seconds: float
    ) -> tuple[list[Any], bytes, bytes]:
        """Return an action or AgentFailure for each observation, and the output on stdout and stderr.

        The process must be running. It is killed at the deadline and after an invalid answer.
        """
        assert self._child is not None
        # The answer repeats the number, so that a late or forged answer is not taken for another act's.
        self._number += 1
        # Sent only when it differs, as it may be larger than the observations.
        changed = None
        if _differs(configuration, self._configuration):
            changed = self._configuration = dict(configuration)
        try:
            request = encode([self._number, observations, changed])
        except WireError:  # for values that only `plain` converts, such as enumeration members
            converted = [plain(observation) for observation in observations]
            request = encode([self._number, converted, changed])
        answers: list[Any] | AgentFailure
        try:
            # Bounded as well: an agent that does not read its pipe would block a large request for ever.
            self._channel.write(request, seconds)
            answers = self._checked(self._read(seconds), len(observations))
        except TimeoutError:
            answers = AgentFailure(
                "TIMEOUT", f"no action within {seconds:g} s; its process was ended"
            )
        except (EOFError, BrokenPipeError, ConnectionResetError):
            answers = AgentFailure("ERROR", f"its process {self._child.exit_text()}")
        except ValueError as error:
            answers = AgentFailure("ERROR", f"its process sent an invalid answer: {error}")
        if isinstance(answers, AgentFailure):
            # The process may still be computing or writing for this act, so that it cannot serve another. Its
            # output is collected first, since closing releases the memory that contains it.
            printed = self._printed()
            self.close()
            return [answers] * len(observations), *printed
        return answers, *self._printed()

    def _read(self, left_s: float) -> list[Any]:
        """Return the next message, draining the process's output meanwhile.

        Raises:
            TimeoutError, EOFError, WireError, ValueError: see `act`.
        """
        while True:
            # In slices, of which only time that this process was running counts: after a suspended laptop
            # resumes, the agent gets the rest of its time.
            slice_s, began = max(min(left_s, SLICE_S), 0.0), monotonic()
            # Polls the output pipes too: an agent that blocks on a full pipe would never answer.
            ready = {fd for fd, _ in self._poller.poll(slice_s * 1000)}
            left_s -= counted_s(began, slice_s)
            if not ready <= self._ready:
                self._pipes.drain(ready, self._poller)
            # A death is noticed here too: the channel raises EOFError, unless a complete answer was sent
            # before.
            if ready & self._ready:
                message = decode(self._channel.read(max(left_s, 0.0)), _LIMITS)
                # Any code in the agent's process can write to the pipe: nothing about a message is trusted.
                if type(message) is not list or len(message) < 2 or message[0] != self._number:
                    raise ValueError("expected the answer to the current request")
                return message
            if left_s <= 0:
                raise TimeoutError

    def _checked(self, message: list[Any], n: int) -> list[Any]:
        """Check the answers in a message, which any code in the process may have written."""
        # A wrong number of items raises ValueError too, which `act` takes for an invalid answer.
        _, given = message
        if type(given) is not list or len(given) != n:
            raise ValueError(f"expected {n} answers")
        answers: list[Any] = []
        for answer in given:
            # [action] or [status, reason].
            if type(answer) is list and len(answer) == 1:
                answers.append(plain(answer[0]))
            elif type(answer) is list and len(answer) == 2 and all(type(a) is str for a in answer):
                answers.append(AgentFailure(*answer))
            else:
                raise ValueError("expected an action or a failure")
        return answers

    def _printed(self) -> tuple[bytes, bytes]:
        """Return the output since the last answer."""
        # No wait: output written before the answer is already in the pipes.
        ready = {fd for fd, _ in self._poller.poll(0)}
        if not ready <= self._ready:
            self._pipes.drain(ready, self._poller)
        (out, error), (more_out, more_error) = self._text.take(), self._pipes.take()
        return out + more_out, error + more_error


def _differs(configuration: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    try:
        return bool(configuration != known)
    except ValueError:
        # Arrays have no single truth value: send them again unless they are the same object.
        return True
