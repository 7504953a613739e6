"""Start the workers of operators, each in a process of its own, with a log of its own.

    caller     launch_operator(config, run_id)     -->  worker: python -m parllel...workers.<worker> ...
               OperatorProcessHandle               <--> commands and replies
    launcher   log_dir/<run_id>.log                <--  its standard error, and output that is no reply
               close()                             -->  ends all of them side by side

A kind is added by a builder `_build_<kind>_command`, and by its name in `OPERATOR_TYPES`.
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

_GRACE_S = 2.0


class OperatorLauncher(Closeable):
    """Launch operators, and end those that still run when it is closed.

    Args:
        folder: where the two folders below are, if their paths are relative; default the current one.
        telemetry_dir: where workers write records of their own, as TELEMETRY_DIR.
        log_dir: gets `<run_id>.log` of each worker, which this user alone may read; added to.
        terminal: whether people are asked at the terminal of this process; otherwise what they choose is sent
            along with each step.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] = ".",
        *,
        telemetry_dir: str | os.PathLike[str] = "var/operators/telemetry",
        log_dir: str | os.PathLike[str] = "var/operators/logs",
        terminal: bool = True,
    ) -> None:
        # Now, as the current folder may change.
        self.telemetry_dir = Path(folder, telemetry_dir).absolute()
        self.log_dir = Path(folder, log_dir).absolute()
        self._handles: list[OperatorProcessHandle] = []
        self._closed = False
        self._terminal = terminal
        # Threads may launch: one that is in between is not yet among the handles. Reentrant: a signal handler
        # may close the launcher in the middle.
        self._lock = threading.RLock()
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
        """Start an operator's worker. What it cannot load it says in reply to the first command.

        Args:
            config: the operator.
            run_id: of this run of it; no other worker may run under it.
            interactive: whether it takes commands; otherwise it plays by itself, and its log gets its output.

        Raises:
            ValueError, TypeError, OSError, ImportError: as `check`, before anything is started.
            WrongStateError: if the operator runs, or another one under this run id.
            WorkerDiedError, WorkerTimeoutError: if no process could be started.
        """
        with self._lock:
            return self._launch(config, run_id, interactive, config.env_id)

    def check(self, config: AnyConfig) -> None:
        """Raise what `launch_operator` would, in one sentence that names the operator; start nothing.

        Raises:
            ValueError, FileNotFoundError, ImportError: if its policy, environment or worker is not there.
            WrongStateError: if an operator of this id runs.
            ClosedError: after `close`.
        """
        with self._lock:
            for operator in operators_of([config]):
                self._check(operator, None, config.env_id)

    def launch_multiagent_operator(
        self, config: MultiAgentConfig, run_id: str | None = None
    ) -> MultiAgentOperatorHandle:
        """Start a worker for each player of a game, or none of them.

        Args:
            config: the game.
            run_id: of this run of it; default "op_ID", by its operator_id. A player's is this, "_" and the
                operator_id of the player.

        Raises: as `launch_operator`.
        """
        base = f"op_{config.operator_id}" if run_id is None else run_id
        handles: dict[str, OperatorProcessHandle] = {}
        with self._lock:
            self.check(config)
            try:
                for player, operator in config.players.items():
                    # The game names its environment when it begins.
                    alone = replace(operator, env_id=None)
                    own = f"{base}_{operator.operator_id}"
                    handles[player] = self._launch(alone, own, True, config.env_id)
            except BaseException:
                end_all([handle.process for handle in handles.values()], 0.0)
                raise
        return MultiAgentOperatorHandle(config, handles)

    def close(self) -> None:
        """End all that runs, side by side. Idempotent."""
        self._closed = True  # before the lock, for those that wait for it to launch
        with self._lock:
            handles, self._handles = self._handles, []
        for handle in handles:
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
        self.log_dir.mkdir(parents=True, exist_ok=True)
        env = "" if config.env_id is None else f" ({config.env_id})"
        process = Program(
            command,
            name=f"operator {config.operator_id!r}{env}",
            environment=worker_variables(config, run_id, self.telemetry_dir),
            passed=passed_variables(config),
            lines=interactive,
            output_to_stderr=True,
            stderr=self.log_dir / f"{run_id}.log",
        )
        handle = OperatorProcessHandle(
            process, config.operator_id, config, run_id, interactive=interactive
        )
        self._handles.append(handle)
        if not interactive:
            process.close_input()
        return handle

    def _check(self, config: OperatorConfig, run_id: str | None, env_id: str | None) -> None:
        if self._closed:
            raise ClosedError("OperatorLauncher: used after it was closed")
        # Those that were ended hold nothing; those that died by themselves are still to be ended by `close`.
        self._handles = [handle for handle in self._handles if not handle.process.ended]
        for handle in self._handles:
            if not handle.is_running:
                continue
            if handle.operator_id == config.operator_id:
                raise WrongStateError(
                    f"operator {config.operator_id!r}: runs already, as process {handle.pid}; end it, "
                    "or take another operator_id"
                )
            if handle.run_id == run_id:
                raise WrongStateError(
                    f"operator {config.operator_id!r}: run_id {run_id!r}: operator "
                    f"{handle.operator_id!r} runs under it; take another"
                )
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
        # It has a session of its own, and hence no terminal.
        terminals = (os.ttyname(fd) for fd in (0, 1, 2) if os.isatty(fd))
        return [*words, *_pair("--tty", next(terminals, None))]

    def _build_llm_command(
        self, config: OperatorConfig, run_id: str, interactive: bool, game: str | None = None
    ) -> list[str]:
        return _command(llm_worker(config.env_id or game), config, run_id, interactive)

    def _build_program_command(
        self, config: OperatorConfig, run_id: str, interactive: bool
    ) -> list[str]:
        # Its own words alone: what else it may want to know stands in its environment.
        return list(config.worker or ())


def _command(worker: str, config: OperatorConfig, run_id: str, interactive: bool) -> list[str]:
    """Return the command line of a worker of this package, which all on this machine can read."""
    words = [sys.executable, "-m", f"parllel.distributed.operators.workers.{worker}"]
    words += _pair("--env-id", config.env_id)
    words += _pair("--env-kwargs", json.dumps(config.env_kwargs) if config.env_kwargs else None)
    words += _pair("--policy", config.policy)
    words += _pair("--settings", json.dumps(config.settings) if config.settings else None)
    words += ["--run-id", run_id]
    words += _pair("--max-steps", config.max_steps)
    return [*words, "--interactive"] if interactive else words


def _pair(option: str, value: object) -> Iterable[str]:
    # In one word: a value may begin with a hyphen.
    return [] if value is None else [f"{option}={value}"]
