"""Launcher of operator workers: one process and one log file per operator.

    caller     launch_operator(config, run_id)     -->  worker: python -m parllel...workers.<worker> ...
               OperatorProcessHandle               <--> commands and replies
    launcher   log_dir/<run_id>.log                <--  standard error, and output that is not a reply
               close()                             -->  ends all workers in parallel

To add a kind, write a builder `_build_<kind>_command` and add its name to `OPERATOR_TYPES`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from parllel.distributed.operators.games.multi_agent_operator_handle import MultiAgentOperatorHandle
from parllel.distributed.operators.llm_routing import llm_worker
from parllel.distributed.operators.operator_process_handle import OperatorProcessHandle
from parllel.distributed.operators.protocol.check_operator import check_operator, check_run_id
from parllel.distributed.operators.protocol.multi_agent_config import (
    AnyConfig,
    MultiAgentConfig,
    operators_of,
)
from parllel.distributed.operators.protocol.operator_config import OperatorConfig
from parllel.distributed.operators.workers.worker_environment import (
    passed_variables,
    worker_variables,
)
from parllel.errors import ClosedError, WrongStateError
from parllel.system.processes.program import Program
from parllel.system.processes.several import end_all
from parllel.types import Closeable

_GRACE_S = 2.0  # for a worker to leave after `stop`, before SIGTERM


class OperatorLauncher(Closeable):
    """Starts operator workers and ends those still running when it is closed.

    Args:
        folder: base folder of relative `telemetry_dir` and `log_dir`. Default: the current folder.
        telemetry_dir: folder passed to workers as TELEMETRY_DIR, in which they may write records.
        log_dir: folder for the log `<run_id>.log` of each worker. Logs are appended to, and only
            this user can read them.
        terminal: whether workers ask people at the terminal of this process. Otherwise the person's
            choice is sent with each step.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] = ".",
        *,
        telemetry_dir: str | os.PathLike[str] = "var/operators/telemetry",
        log_dir: str | os.PathLike[str] = "var/operators/logs",
        terminal: bool = True,
    ) -> None:
        # Resolved now: the current folder may change before an operator is launched.
        self.telemetry_dir = Path(folder, telemetry_dir).absolute()
        self.log_dir = Path(folder, log_dir).absolute()
        self._handles: list[OperatorProcessHandle] = []
        self._closed = False
        self._terminal = terminal
        # Threads may launch at the same time. Checking the ids and adding the handle must be one step, or two
        # operators could take the same id. Reentrant: a signal handler may close the launcher during a
        # launch.
        self._lock = threading.RLock()
        # Without "llm": its worker also depends on the game, see `_launch`.
        self._builders: dict[str, Callable[[OperatorConfig, str, bool], list[str]]] = {
            "baseline": self._build_baseline_command,
            "chess": self._build_chess_command,
            "human": self._build_human_command,
            "policy": self._build_policy_command,
            "program": self._build_program_command,
            "rl": self._build_rl_command,
        }

    def launch_operator(
        self, config: OperatorConfig, run_id: str, *, interactive: bool = False
    ) -> OperatorProcessHandle:
        """Start an operator's worker.

        Returns as soon as the process runs. If the worker fails to load its policy or environment, its reply
        to the first command reports the failure.

        Args:
            config: the operator.
            run_id: name of this run of the operator. It must be unique among running workers.
            interactive: whether the worker is driven by commands. Otherwise it plays by itself, and
                its output goes to its log.

        Raises:
            ValueError, TypeError, OSError, ImportError: for the same reasons as `check`, before a process is
                started.
            WrongStateError: if an operator with this id or this run id is already running.
            WorkerDiedError, WorkerTimeoutError: if no process could be started.
        """
        # Held until the process is started, but not while the worker loads its policy.
        with self._lock:
            return self._launch(config, run_id, interactive, config.env_id)

    def check(self, config: AnyConfig) -> None:
        """Raise the error that `launch_operator` would raise for a config, without starting anything.

        Raises:
            ValueError, FileNotFoundError, ImportError: if its policy, environment or worker is missing.
            WrongStateError: if an operator with this id is already running.
            ClosedError: after `close`.
        """
        with self._lock:
            for operator in operators_of([config]):
                self._check(operator, None, config.env_id)

    def launch_multiagent_operator(
        self, config: MultiAgentConfig, run_id: str | None = None
    ) -> MultiAgentOperatorHandle:
        """Start one worker per player of a game, or none if one of them fails.

        Args:
            config: the game.
            run_id: name of this run of the game. Default: `op_<operator_id>`. A player's run id is
                this name, followed by "_" and the player's operator_id.

        Raises: the same errors as `launch_operator`.
        """
        base = f"op_{config.operator_id}" if run_id is None else run_id
        handles: dict[str, OperatorProcessHandle] = {}
        # Held for all players: another launch must not take one of their ids in between.
        with self._lock:
            # All players are checked before the first is started: most mistakes cost no process.
            self.check(config)
            try:
                for player, operator in config.players.items():
                    # Without an environment: `init_agent` names it when a game begins.
                    player_config = replace(operator, env_id=None)
                    player_run_id = f"{base}_{operator.operator_id}"
                    handles[player] = self._launch(
                        player_config, player_run_id, True, config.env_id
                    )
            except BaseException:
                # The players started so far have no game to play. They stay in `_handles`, marked as ended.
                end_all([handle.process for handle in handles.values()], 0.0)
                raise
        return MultiAgentOperatorHandle(config, handles)

    def close(self) -> None:
        """End all running operators in parallel. Idempotent."""
        # Set before the lock is taken: a thread that waits for the lock to launch then raises ClosedError.
        self._closed = True
        with self._lock:
            handles, self._handles = self._handles, []
        for handle in handles:
            # All are asked first and ended together, so that the grace periods overlap. The lock is released:
            # a worker that takes long to leave blocks nobody.
            handle.ask_to_stop()
        end_all([handle.process for handle in handles], _GRACE_S)

    # ------------------------------------------------------------------ launching

    def _launch(
        self, config: OperatorConfig, run_id: str, interactive: bool, game: str | None
    ) -> OperatorProcessHandle:
        check_run_id(config.operator_id, run_id)
        self._check(config, run_id, game)
        if config.operator_type == "llm":
            command = self._build_llm_command(config, run_id, interactive, game)
        else:
            command = self._builders[config.operator_type](config, run_id, interactive)
        # Not in the constructor: a launcher that starts nothing leaves no folder behind.
        self.log_dir.mkdir(parents=True, exist_ok=True)
        env = "" if config.env_id is None else f" ({config.env_id})"
        # Secrets travel in the environment only: every user of the machine can read command lines.
        process = Program(
            command,
            name=f"operator {config.operator_id!r}{env}",
            environment=worker_variables(config, run_id, self.telemetry_dir),
            passed=passed_variables(config),
            # Standard output carries the replies, or else is part of the log.
            lines=interactive,
            output_to_stderr=True,
            stderr=self.log_dir / f"{run_id}.log",
        )
        handle = OperatorProcessHandle(
            process, config.operator_id, config, run_id, interactive=interactive
        )
        # At once: from here on `close` ends the worker, whatever happens to the caller.
        self._handles.append(handle)
        if not interactive:
            # Nobody will send a command; a worker that reads its input sees the end at once.
            process.close_input()
        return handle

    def _check(self, config: OperatorConfig, run_id: str | None, env_id: str | None) -> None:
        if self._closed:
            raise ClosedError("OperatorLauncher: used after it was closed")
        # Ended operators hold no resources and are dropped. One that died by itself stays: its process still
        # has to be reaped, and what it started to be killed, by `close`.
        self._handles = [handle for handle in self._handles if not handle.process.ended]
        for handle in self._handles:
            # After a death both ids are free: a restart appends to the same log.
            if not handle.is_running:
                continue
            if handle.operator_id == config.operator_id:
                raise WrongStateError(
                    f"operator {config.operator_id!r} is already running as process {handle.pid}; "
                    "end it or use another operator_id"
                )
            if handle.run_id == run_id:
                raise WrongStateError(
                    f"operator {config.operator_id!r}: run_id {run_id!r} is in use by operator "
                    f"{handle.operator_id!r}, which is running; use another run_id"
                )
        # Last, because it reads files and registries.
        check_operator(config, env_id)

    # ------------------------------------------------------------------ command lines

    def _build_baseline_command(
        self, config: OperatorConfig, run_id: str, interactive: bool
    ) -> list[str]:
        return _command("operators_worker", config, run_id, interactive)

    def _build_rl_command(
        self, config: OperatorConfig, run_id: str, interactive: bool
    ) -> list[str]:
        return _command("rl_worker", config, run_id, interactive)

    def _build_policy_command(
        self, config: OperatorConfig, run_id: str, interactive: bool
    ) -> list[str]:
        return _command("policy_worker", config, run_id, interactive)

    def _build_chess_command(
        self, config: OperatorConfig, run_id: str, interactive: bool
    ) -> list[str]:
        return _command("chess_worker", config, run_id, interactive)

    def _build_human_command(
        self, config: OperatorConfig, run_id: str, interactive: bool
    ) -> list[str]:
        words = _command("human_worker", config, run_id, interactive)
        if not self._terminal:
            return [*words, "--no-terminal"]
        # The worker runs in its own session, which has no controlling terminal: pass the path of ours.
        terminals = (os.ttyname(fd) for fd in (0, 1, 2) if os.isatty(fd))
        return [*words, *_pair("--tty", next(terminals, None))]

    def _build_llm_command(
        self, config: OperatorConfig, run_id: str, interactive: bool, game: str | None = None
    ) -> list[str]:
        return _command(llm_worker(config.env_id or game), config, run_id, interactive)

    def _build_program_command(
        self, config: OperatorConfig, run_id: str, interactive: bool
    ) -> list[str]:
        # Verbatim: a foreign program gets run id, seeds and folders from its environment variables.
        return list(config.worker or ())


def _command(worker: str, config: OperatorConfig, run_id: str, interactive: bool) -> list[str]:
    """Return the command line of one of our workers. It must hold no secret: any user can read it."""
    # The same interpreter, and thus the same installed packages.
    words = [sys.executable, "-m", f"parllel.distributed.operators.workers.{worker}"]
    words += _pair("--env-id", config.env_id)
    words += _pair("--env-kwargs", json.dumps(config.env_kwargs) if config.env_kwargs else None)
    words += _pair("--policy", config.policy)
    words += _pair("--settings", json.dumps(config.settings) if config.settings else None)
    words += ["--run-id", run_id]
    words += _pair("--max-steps", config.max_steps)
    return [*words, "--interactive"] if interactive else words


def _pair(option: str, value: object) -> Iterable[str]:
    # As one argument `--option=value`: a value may begin with a hyphen.
    return [] if value is None else [f"{option}={value}"]
