"""Agents of an episode: one interface for functions, processes and servers.

Agent.act, one at a time ---> _here         a function or policy in this process
                         |--> _in_process   AgentProcess: the agent's code in a separate process
                         '--> _on_server    UrlAgent or ProtobufAgent, over HTTP
Agent.close, any thread       interrupts a process; an act in progress then returns a failure
"""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from time import perf_counter
from typing import Any

from parllel.distributed.remote.agent_archive import ExtractedArchive
from parllel.distributed.remote.agent_context import AgentContext
from parllel.distributed.remote.agent_process import AgentCode, AgentProcess
from parllel.distributed.remote.agent_settings import AgentSettings
from parllel.distributed.remote.build_agent import build_agent
from parllel.distributed.remote.call_agent import ask, number_of_arguments
from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.remote.plain_values import plain
from parllel.distributed.remote.policy_call import PolicyCall
from parllel.distributed.remote.printed_here import printed
from parllel.distributed.remote.protobuf_agent import ProtobufAgent
from parllel.distributed.remote.remote_reply import act_seconds
from parllel.distributed.remote.url_agent import UrlAgent
from parllel.distributed.web.http_client import redacted
from parllel.distributed.wire.wire_error import WireError
from parllel.errors import ClosedError, ParllelError
from parllel.types import Closeable

_MAX_LOG = 1 << 18  # characters; default and upper limit of maxLogLength
_START_S = 60.0  # default of agentTimeout
_LOOK_S = 0.01  # between attempts of `close` to interrupt an act


class Agent(Closeable):
    """Agent built from a specification. Failures and time-outs become values, not exceptions.

    The code of a file, source text or run is executed on construction, in a separate process. A process that
    exceeds the time of an act is killed; the next act starts a new one, which executes the code again.
    Functions act in this process: they are the caller's own code and cannot be interrupted.

    Thread-safe: acts of one agent are serialised, acts of different agents are not.

    Args:
        raw: the specification, see `build_agent`.
        environment: the environment that the agent acts in. Its configuration is read at each act.
        settings: permissions and limits of the agent's process, if it has one.

    Attributes:
        raw: the specification.
        kind: kind of the specification, see `build_agent`.
        recurrent: whether the agent keeps state during an episode, like a run with a recurrent
            policy.

    Raises:
        ValueError: for an invalid specification, or code that fails when it is executed.
        FileNotFoundError: if a named file or folder does not exist.
        WorkerTimeoutError, WorkerDiedError: if the code is not ready within `agentTimeout`.
    """

    def __init__(
        self, raw: Any, environment: AgentContext, settings: AgentSettings | None = None
    ) -> None:
        self.raw = raw
        self._environment = environment
        made, self.kind = build_agent(raw, environment)
        self._process: AgentProcess | None = None
        self._acts: Any = made
        self._n_arguments = 2
        self._lock = threading.Lock()  # held during an act; guards the process and its pipes
        self._closed = False
        self._has_acted = False  # whether there was an act: the first may take `agentTimeout`
        self._archive: ExtractedArchive | None = None
        if isinstance(made, AgentCode):
            self._process = self._started(made, settings or AgentSettings())
        elif not isinstance(made, (UrlAgent, ProtobufAgent, PolicyCall)):
            self._n_arguments = number_of_arguments(made)
        self.recurrent = self._process is not None and self._process.recurrent

    def _started(self, code: AgentCode, settings: AgentSettings) -> AgentProcess:
        try:
            if code.kind == "archive":
                self._archive = ExtractedArchive(code.text, code.title)
                code = replace(code, kind="file", text=self._archive.main)
            return AgentProcess(
                code,
                self._configuration(code),
                start_s=_number(self._environment.configuration.get("agentTimeout"), _START_S),
                # A character takes up to four bytes in UTF-8.
                text_bytes=4 * self._log_length(),
                settings=settings,
            )
        except BaseException:
            # Nobody else knows the extracted files if the constructor fails.
            self._close_archive()
            raise

    def _close_archive(self) -> None:
        if self._archive is not None:
            self._archive.close()

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"

    @property
    def name(self) -> str:
        """Short form of the specification for messages, without a URL's password."""
        if self.kind in ("url", "proto"):
            return str(self._acts.url)
        return (
            redacted(self.raw)
            if isinstance(self.raw, str) and "://" in self.raw
            else _short(self.raw)
        )

    # ------------------------------------------------------------------ acting

    def act(self, observation: Any) -> tuple[Any, dict[str, Any]]:
        """Return the action for an observation, or an AgentFailure, and the log of the act.

        The action consists of JSON values; numpy arrays and scalars are converted. The time limit
        is `actTimeout` plus the observation's `remainingOverageTime`. If the latter is missing, the
        first act gets `agentTimeout` instead. The log contains `duration` in seconds, without the
        start of a process, and `stdout` and `stderr`, cut at `maxLogLength` characters.

        Raises:
            ClosedError: after `close`.
            WireError: for an observation that cannot be sent to the agent. Names the path of the
                value.
        """
        actions, log = self.act_batch([observation])
        return actions[0], log

    def act_batch(self, observations: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return an action or AgentFailure for each observation, and one log for the batch.

        The time limit is `actTimeout` per observation, plus the largest overage time left among
        them.

        Raises:
            ClosedError: after `close`.
        """
        with self._lock:
            # Under the lock: a thread that waited for it must not start a process after `close`.
            self._check_open()
            configuration = self._environment.configuration
            first_s = (
                0.0 if self._has_acted else _number(configuration.get("agentTimeout"), _START_S)
            )
            seconds = act_seconds(observations, configuration, first_s)
            self._has_acted = True
            if self._process is not None:
                return self._in_process(self._process, observations, seconds)
            if isinstance(self._acts, (UrlAgent, ProtobufAgent)):
                return self._on_server(observations, configuration)
            return self._here(observations, configuration, seconds)

    def _in_process(
        self, process: AgentProcess, observations: list[Any], seconds: float
    ) -> tuple[list[Any], dict[str, Any]]:
        configuration = self._configuration(process.code)
        began = perf_counter()
        # Killed at the deadline of an earlier act, or died since.
        if not process.running:
            try:
                process.start(configuration)
            except (ParllelError, ValueError, OSError) as error:
                # A failure of this act only: the next act tries to start it again.
                failure = AgentFailure("ERROR", str(error))
                return [failure] * len(observations), self._log(perf_counter() - began)
            # The start does not count against the agent's time.
            began = perf_counter()
        answers, stdout, stderr = process.act(observations, configuration, seconds)
        duration = perf_counter() - began
        if not (stdout or stderr):
            return answers, self._log(duration)
        texts = (text.decode("utf-8", "replace") for text in (stdout, stderr))
        return answers, self._log(duration, *texts)

    def _on_server(
        self, observations: list[Any], configuration: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        began = perf_counter()
        if isinstance(self._acts, UrlAgent):
            several = len(observations) != 1
            answers, out, error = self._acts.answers(observations, configuration, batch=several)
        else:
            answers, out, error = self._acts.answers(observations, configuration)
        duration = perf_counter() - began
        return [_checked(answer) for answer in answers], self._log(duration, out, error)

    def _here(
        self, observations: list[Any], configuration: dict[str, Any], seconds: float
    ) -> tuple[list[Any], dict[str, Any]]:
        began = perf_counter()
        with printed(self._log_length()) as (stdout, stderr):
            if isinstance(self._acts, PolicyCall):
                answers = self._acts.answers(observations, stderr)
            else:
                answers = [
                    ask(self._acts, self._n_arguments, observation, configuration, stderr)
                    for observation in observations
                ]
        duration = perf_counter() - began
        # Judged afterwards, since nothing can interrupt a function in this process.
        if duration > seconds:
            late = AgentFailure(
                "TIMEOUT", f"no action within {seconds:g} s; it took {duration:g} s"
            )
            answers = [late] * len(answers)
        return answers, self._log(duration, stdout.getvalue(), stderr.getvalue())

    def _log(self, duration: float, stdout: str = "", stderr: str = "") -> dict[str, Any]:
        if self._environment.debug:
            # Both to standard error: standard output is for the results of commands.
            sys.stderr.write(stdout + stderr)
        longest = self._log_length()
        return {
            "duration": round(duration, 6),
            "stdout": stdout[:longest],
            "stderr": stderr[:longest],
        }

    def _log_length(self) -> int:
        given = self._environment.configuration.get("maxLogLength")
        return int(min(max(_number(given, _MAX_LOG), 0), _MAX_LOG))

    def _configuration(self, code: AgentCode) -> dict[str, Any]:
        """Return the configuration passed to the agent: with the path of its code, if it has one."""
        if code.kind == "source":
            return self._environment.configuration
        return {**self._environment.configuration, "__raw_path__": code.text}

    # ------------------------------------------------------------------ ending

    def close(self) -> None:
        """Kill the agent's process or close its connections. Idempotent.

        An act in progress in another thread returns a failure, unless it runs in this process.
        """
        # Before the lock is requested: acts that wait for it then raise ClosedError instead of acting.
        self._closed = True
        if self._process is None:
            # Without the lock: a client's connections may be closed while a request waits for its reply.
            if hasattr(self._acts, "close") and self.kind in ("url", "proto"):
                self._acts.close()
            return
        # The lock belongs to an act in progress, whose process is killed so that it returns. Repeated,
        # because that act may just be starting the process again, when there is nothing to kill yet.
        while not self._lock.acquire(timeout=_LOOK_S):
            self._process.interrupt()
        try:
            self._process.close()
            self._close_archive()
        finally:
            self._lock.release()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self!r}: used after close()")


def _checked(answer: Any) -> Any:
    """Convert a server's answer to JSON values, since protobuf replies may contain arrays."""
    if isinstance(answer, AgentFailure):
        return answer
    try:
        return plain(answer)
    except WireError as error:
        return AgentFailure("INVALID", f"returned an invalid action: {error}")


def _number(value: Any, default: float) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return default


def _short(raw: Any) -> str:
    text = raw if isinstance(raw, str) else repr(raw)
    return text if len(text) <= 80 else f"{text[:77]}..."
