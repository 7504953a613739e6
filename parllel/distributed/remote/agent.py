"""An agent of an episode, wherever it acts."""

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

_MAX_LOG = 1 << 18  # characters, where maxLogLength says nothing or more
_START_S = 60.0
_LOOK_S = 0.01  # for an act to end by itself before it is ended


class Agent(Closeable):
    """Act for a specification, in time, and keep to itself what goes wrong.

    The code of a file, of source text and of a run is executed now, in a process of its own, which is ended
    when it exceeds the time of an act, and started anew, with the code executed again, at the next act.
    Functions act in this process: they are the caller's own code, and cannot be ended.

    Args:
        raw: the specification, see `build_agent`.
        environment: what it acts in. Its configuration is read at each act.
        settings: what its process may use, if it has one.

    Attributes:
        raw: the specification.
        kind: of specification, see `build_agent`.
        recurrent: whether it remembers episodes: a run whose policy does.

    Raises:
        ValueError: for a specification that cannot be understood, and code that fails when it is executed.
        FileNotFoundError: if what it names is not there.
        WorkerTimeoutError, WorkerDiedError: if the code does not come to its end in `agentTimeout`.

    One act is made at a time; threads wait for each other, and not for other agents.
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
        self._lock = threading.Lock()
        self._closed = False
        self._asked = False
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
                # In UTF-8 a character takes up to four bytes.
                text_bytes=4 * self._log_length(),
                settings=settings,
            )
        except BaseException:
            self._close_archive()
            raise

    def _close_archive(self) -> None:
        if self._archive is not None:
            self._archive.close()

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"

    @property
    def name(self) -> str:
        """The specification for messages, without the secrets of a URL."""
        if self.kind in ("url", "proto"):
            return str(self._acts.url)
        return (
            redacted(self.raw)
            if isinstance(self.raw, str) and "://" in self.raw
            else _short(self.raw)
        )

    # ------------------------------------------------------------------ acting

    def act(self, observation: Any) -> tuple[Any, dict[str, Any]]:
        """Return the action for an observation, or an AgentFailure, and the log of it.

        The action consists of JSON values; arrays and numbers of numpy become such. It may take `actTimeout`
        and the observation's `remainingOverageTime`; where that is missing, the first act may take
        `agentTimeout` in its place. The log has `duration`, in seconds and without the start of a process,
        and `stdout` and `stderr`, cut at `maxLogLength` characters.

        Raises:
            ClosedError: after `close`.
            WireError: for an observation that cannot be sent to where the agent acts; names its path.
        """
        actions, log = self.act_batch([observation])
        return actions[0], log

    def act_batch(self, observations: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return an action or AgentFailure for each observation, and one log of all.

        It may take the time of all acts, and the most overage that one of them has left.

        Raises:
            ClosedError: after `close`.
        """
        with self._lock:
            self._check_open()
            configuration = self._environment.configuration
            first_s = 0.0 if self._asked else _number(configuration.get("agentTimeout"), _START_S)
            seconds = act_seconds(observations, configuration, first_s)
            self._asked = True
            if self._process is not None:
                return self._in_process(self._process, observations, seconds)
            if isinstance(self._acts, (UrlAgent, ProtobufAgent)):
                return self._behind_url(observations, configuration)
            return self._here(observations, configuration, seconds)

    def _in_process(
        self, process: AgentProcess, observations: list[Any], seconds: float
    ) -> tuple[list[Any], dict[str, Any]]:
        configuration = self._configuration(process.code)
        began = perf_counter()
        if not process.running:
            try:
                process.start(configuration)
            except (ParllelError, ValueError, OSError) as error:
                # As after any other failure: the next act tries again.
                failure = AgentFailure("ERROR", str(error))
                return [failure] * len(observations), self._log(perf_counter() - began)
            began = perf_counter()
        answers, stdout, stderr = process.act(observations, configuration, seconds)
        duration = perf_counter() - began
        if not (stdout or stderr):
            return answers, self._log(duration)
        texts = (text.decode("utf-8", "replace") for text in (stdout, stderr))
        return answers, self._log(duration, *texts)

    def _behind_url(
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
                answers = self._acts.asked(observations, stderr)
            else:
                answers = [
                    ask(self._acts, self._n_arguments, observation, configuration, stderr)
                    for observation in observations
                ]
        duration = perf_counter() - began
        if duration > seconds:
            late = AgentFailure(
                "TIMEOUT", f"no action within {seconds:g} s; it took {duration:g} s"
            )
            answers = [late] * len(answers)
        return answers, self._log(duration, stdout.getvalue(), stderr.getvalue())

    def _log(self, duration: float, stdout: str = "", stderr: str = "") -> dict[str, Any]:
        if self._environment.debug:
            # On standard error both, as standard output holds the results of commands.
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
        """Return what the agent is shown of the configuration."""
        if code.kind == "source":
            return self._environment.configuration
        return {**self._environment.configuration, "__raw_path__": code.text}

    # ------------------------------------------------------------------ ending

    def close(self) -> None:
        """End its process, or close its connections; may be called twice.

        An act that another thread waits for ends with a failure, unless it is made in this process.
        """
        self._closed = True
        if self._process is None:
            if hasattr(self._acts, "close") and self.kind in ("url", "proto"):
                self._acts.close()
            return
        # Again and again: the other thread may just be starting the process anew.
        while not self._lock.acquire(timeout=_LOOK_S):
            self._process.interrupt()
        try:
            self._process.close()
            self._close_archive()
        finally:
            self._lock.release()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self!r}: used after it was closed")


def _checked(answer: Any) -> Any:
    """Return what a server answered as JSON values: protobuf can hold others."""
    if isinstance(answer, AgentFailure):
        return answer
    try:
        return plain(answer)
    except WireError as error:
        return AgentFailure("INVALID", f"returned what is no action: {error}")


def _number(value: Any, default: float) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return default


def _short(raw: Any) -> str:
    text = raw if isinstance(raw, str) else repr(raw)
    return text if len(text) <= 80 else f"{text[:77]}..."
