"""One operator's worker, spoken to in commands and replies.

    caller   send_*          one line per command -->  worker's standard input
             read_response   <-- the replies to the newest command, which are lines of its standard output
                             replies to earlier commands, and to none, are left out and counted
             end             a last `stop`, the end of its input, SIGTERM, SIGKILL: to all that it started

There are three outcomes: a reply, a time-out (the worker lives, and may still answer), and its death.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from time import monotonic
from typing import Any

from msgspec import UNSET

from parllel.distributed.operators.protocol.message_lines import (
    REPLIES,
    MessageError,
    read_reply,
    write_command,
)
from parllel.distributed.operators.protocol.messages import (
    AnyCommand,
    Frame,
    InitAgentCommand,
    PingCommand,
    ResetCommand,
    SelectActionCommand,
    StepCommand,
    StopCommand,
)
from parllel.distributed.operators.protocol.operator_config import OperatorConfig
from parllel.distributed.operators.protocol.owed_replies import OwedReplies
from parllel.errors import (
    BadReplyError,
    ClosedError,
    LineTooLongError,
    WorkerDiedError,
    WorkerError,
    WorkerTimeoutError,
    WrongStateError,
)
from parllel.system.processes.program import Program
from parllel.system.processes.several import await_lines
from parllel.types import Closeable

_AT_ONCE = 1000  # lines that are looked through, although the time is over
_LEAVE_S = 1.0  # for a worker that has said that it stops
_SHOWN = 100  # characters of a line, in messages


class OperatorProcessHandle(Closeable):
    """A running worker of one operator. It serves one thread at a time; `end` may come from another.

    Args:
        process: the worker; ended by `end`.
        operator_id: what errors call it.
        config: what it was launched with.
        run_id: of this run of it, which its records carry.
        interactive: whether it takes commands.
        write_timeout_s: for a command to be taken, which takes no time unless the worker does not read.

    A new command takes the place of the one before: what the worker still sends for that one is left out.
    """

    def __init__(
        self,
        process: Program,
        operator_id: str,
        config: OperatorConfig,
        run_id: str,
        *,
        interactive: bool = True,
        write_timeout_s: float = 10.0,
    ) -> None:
        self.process = process
        self.operator_id = operator_id
        self.config = config
        self.run_id = run_id
        self.interactive = interactive
        self.write_timeout_s = write_timeout_s
        self._owed = OwedReplies()
        self._n_left_out = 0
        self._is_stopping = False
        self._complaint: str | None = None  # an error that was left out: perhaps why it died

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the worker runs; False after `end`."""
        return self.process.alive

    @property
    def n_left_out(self) -> int:
        """How many lines were left out: late replies, and what answers no command."""
        return self._n_left_out

    # ------------------------------------------------------------------ commands

    def send_reset(
        self,
        seed: int | None = None,
        *,
        agent_seed: int | None = None,
        max_steps: int | None = None,
        frame: Frame = None,
    ) -> None:
        """Ask for a new episode, which `ready` answers.

        Args:
            seed: of the environment. None goes on.
            agent_seed: from which that of the agent follows; None for `seed`.
            max_steps: after which the episode is truncated; None for the operator's own.
            frame: "png" or "rgb" sends a picture along.

        Raises:
            WorkerDiedError, WorkerTimeoutError: if the worker has ended, or does not take the command.
            WrongStateError: of an operator that takes no commands, or was stopped; ClosedError after `end`.
            MessageError: for a value that cannot be sent.
        """
        steps = UNSET if max_steps is None else max_steps
        seed = seed if seed is None else int(seed)
        command = ResetCommand(seed=seed, max_steps=steps, frame=frame or UNSET)
        if agent_seed is not None:
            command.agent_seed = int(agent_seed)
        self._send("reset", command)

    def send_step(
        self, *, frame: Frame = None, last_frame: Frame = None, action: Any = UNSET
    ) -> None:
        """Ask for one step, which `step` answers, and `episode_end` after the last; raise as `send_reset`.

        Args:
            frame: "png" or "rgb" sends a picture along.
            last_frame: sends one along if the episode ends with this step.
            action: what a person chose.
        """
        self._send(
            "step", StepCommand(frame=frame or UNSET, last_frame=last_frame or UNSET, action=action)
        )

    def send_stop(self) -> None:
        """Ask the worker to end, which `stopped` answers. Reading that ends all that it has started."""
        self._send("stop", StopCommand())
        self._is_stopping = True

    def send_ping(self) -> None:
        """Ask for `pong`; raise as `send_reset`."""
        self._send("ping", PingCommand())

    def send_init_agent(
        self,
        game_name: str,
        player_id: str,
        *,
        seed: int | None = None,
        env_id: str | None = None,
        env_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Ask the worker to be a player, which `agent_ready` answers; raise as `send_reset`."""
        command = InitAgentCommand(game_name=game_name, player_id=player_id, seed=seed)
        if env_id is not None:
            command.env_id, command.env_kwargs = env_id, env_kwargs or {}
        self._send("init_agent", command)

    def send_select_action(
        self,
        player_id: str,
        observation: Any,
        *,
        legal_actions: list[Any] | None = None,
        info: dict[str, Any] | None = None,
        text: str | None = None,
        action: Any = UNSET,
    ) -> None:
        """Ask a player for an action, which `action_selected` answers; raise as `send_reset`.

        Observation, actions and info are JSON values. `action` is what a person chose.
        """
        command = SelectActionCommand(player_id=player_id, observation=observation, action=action)
        command.legal_actions = legal_actions
        command.info = UNSET if info is None else info
        command.text = UNSET if text is None else text
        self._send("select_action", command)

    def _send(self, name: str, command: AnyCommand) -> None:
        self._check_interactive()
        # `write` says that it was ended.
        if self._is_stopping and not self.process.ended:
            raise WrongStateError(f"{self.process.name}: cannot send {name!r} after 'stop'")
        command.id = self._owed.next_id()
        line = write_command(command)
        if not self._owed.repeats_ids:
            # What is there before the command was sent cannot be its reply.
            self._leave_out_what_came()
        try:
            self.process.write(line, self.write_timeout_s)
        except WorkerDiedError as error:
            self._leave_out_what_came()
            raise self._explained(error) from None
        self._owed.expect_reply_to(name)

    def _check_interactive(self) -> None:
        if not self.interactive:
            raise WrongStateError(
                f"{self.process.name}: Cannot send command to non-interactive operator; launch it with "
                "interactive=True"
            )

    # ------------------------------------------------------------------ replies

    def try_read_response(self, timeout: float = 0.1) -> dict[str, Any] | None:
        """Return the next reply to the newest command as a dict, None if none came in `timeout` seconds.

        Raises:
            WorkerDiedError: if the worker ended, or closed its output; says how, and its last words.
            BadReplyError: for a line that is no reply; LineTooLongError: in place of an endless one. The next
                reply can be read.
            WrongStateError: of an operator that takes no commands; ClosedError after `end`.
        """
        self._check_interactive()
        deadline, n_lines = monotonic() + timeout, 0
        while True:
            left_s = deadline - monotonic() if n_lines else timeout
            try:
                line = self.process.try_read_line(max(left_s, 0.0))
            except WorkerDiedError as error:
                raise self._explained(error) from None
            if line is None:
                return None
            reply = self._taken(line)
            if reply is not None:
                return reply
            n_lines += 1
            # A flood of what is left out may have no end.
            if n_lines >= _AT_ONCE and monotonic() > deadline:
                return None

    def read_response(self, timeout: float = 5.0) -> dict[str, Any]:
        """Return the next reply to the newest command as a dict.

        Raises:
            WorkerTimeoutError: if none came in `timeout` seconds. The worker lives on; read again to wait for
                longer, or send another command.
            others: as `try_read_response`.
        """
        reply = self.try_read_response(timeout)
        if reply is not None:
            return reply
        awaited = self._owed.awaited
        what = "said nothing" if awaited is None else f"did not answer {awaited!r}"
        notes = ""
        if self._n_left_out:
            notes = f"; {self._n_left_out:,} of its lines answer no command that is open"
        raise WorkerTimeoutError(
            f"{self.process.name}: process {self.pid} {what} within {timeout:g} s{notes}"
        )

    def _taken(self, line: bytes) -> dict[str, Any] | None:
        """Return a line's reply if it is for the caller."""
        try:
            reply = read_reply(line)
        except MessageError as error:
            if self._is_late(line, error.id):
                self._n_left_out += 1
                return None
            raise self._bad(line, error) from None
        if self._owed.match(reply):
            if reply["type"] == "stopped":
                # Here, as what it has started would stay otherwise.
                self.process.end(_LEAVE_S)
            return reply
        self._n_left_out += 1
        if reply["type"] == "error":
            self._complaint = reply["message"]
        return None

    def _is_late(self, line: bytes, number: int | str | None) -> bool:
        """Return whether a line that cannot be read is the reply to a command that was given up."""
        if number is None and not _is_reply(line):
            return False  # a library's print, perhaps: the reply is still to come
        return not self._owed.fail(number)

    def _bad(self, line: bytes, error: MessageError) -> BadReplyError:
        beginning = line[:_SHOWN].decode(errors="backslashreplace")
        return BadReplyError(
            f"{self.process.name}: process {self.pid} wrote what is no reply: {error}; its line begins "
            f"with {beginning!r}"
        )

    def _leave_out_what_came(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                line = self.process.try_read_line(0.0)
                if line is None:
                    return
                reply = read_reply(line)
            except (LineTooLongError, MessageError):
                self._n_left_out += 1
            except WorkerError:
                return  # the write that follows says how it ended
            else:
                self._owed.match(reply)
                self._n_left_out += 1
                if reply["type"] == "error":
                    self._complaint = reply["message"]

    def _explained(self, error: WorkerDiedError) -> WorkerDiedError:
        """Add to a death what the worker complained of before, which was not read."""
        if self._complaint is not None:
            error.args = (f"{error}; it had said: {self._complaint}",)
        return error

    # ------------------------------------------------------------------ the end

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the worker to end by itself and return its exit code; None if it runs on."""
        return self.process.wait(timeout_s)

    def end(self, grace_s: float = 2.0) -> None:
        """Ask the worker to stop, give it `grace_s`, then terminate it, then kill it, with all it started.

        Idempotent. What it wrote and was not read is lost.
        """
        self.ask_to_stop()
        self.process.end(grace_s)

    def ask_to_stop(self) -> None:
        """Send a last `stop` if the worker takes it at once, and close its input; do not wait."""
        if self.interactive and not self._is_stopping and not self.process.ended:
            self._is_stopping = True
            with contextlib.suppress(WorkerError, ClosedError):
                self.process.write(write_command(StopCommand()), 0.0)
        self.process.close_input()

    def close(self) -> None:
        """End the worker. Idempotent."""
        self.end()


def await_replies(
    handles: Sequence[OperatorProcessHandle], timeout: float = 5.0
) -> list[OperatorProcessHandle]:
    """Return those operators whose worker has written something, or has ended, once any has.

    `try_read_response(0)` of each then returns its reply, raises, or returns None, if that was a late reply.

    Returns:
        None of them if the time is over, or if `handles` is empty.
    """
    heard = await_lines([handle.process for handle in handles], timeout)
    return [handle for handle in handles if handle.process in heard]


def _is_reply(line: bytes) -> bool:
    """Return whether a line that cannot be read was meant as a reply."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("type") in REPLIES
