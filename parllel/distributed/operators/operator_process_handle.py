"""Handle of one operator's worker: sends commands and reads replies.

    caller   send_*          one line per command -->  worker's standard input
             read_response   <-- replies to the newest command, from the worker's standard output
                             late replies, and lines that answer no command, are skipped and counted
             end             a last `stop`, end of input, SIGTERM, SIGKILL: to the worker and all it started

A read has three outcomes: a reply, a timeout (the worker is alive and may still answer), or its death.
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

_AT_ONCE = 1000  # lines to look through after the deadline: many may have arrived before it
_LEAVE_S = 1.0  # for a worker to exit after its `stopped` reply
_SHOWN = 100  # characters of a bad line in error messages


class OperatorProcessHandle(Closeable):
    """A running worker of one operator.

    Not thread-safe: one thread at a time sends and reads. `end` may be called from another thread.

    Args:
        process: the worker's process, which `end` ends.
        operator_id: name used in errors.
        config: configuration that the worker was launched with.
        run_id: name of this run in the worker's records.
        interactive: whether the worker takes commands.
        write_timeout_s: time limit in seconds for writing a command. Writing blocks only if the
            worker does not read.

    A new command replaces the previous one: replies that the worker still sends to the old one are skipped.
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
        # Tells replies to the newest command from late ones, even if the worker repeats no ids.
        self._owed = OwedReplies()
        self._n_left_out = 0
        self._is_stopping = False  # nothing may follow a `stop`
        # The last error reply that was skipped: it often explains a death that follows.
        self._complaint: str | None = None

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the worker is running; False after `end`."""
        return self.process.alive

    @property
    def n_left_out(self) -> int:
        """Number of skipped lines: late replies, and lines that answer no command."""
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
        """Start a new episode; the worker replies `ready`.

        Args:
            seed: seed of the environment. None continues its random stream.
            agent_seed: seed from which the agent's seed is derived. Default: `seed`.
            max_steps: number of steps after which the episode is truncated. Default: the operator's
                limit.
            frame: "png" or "rgb" to include a picture in the reply.

        Raises:
            WorkerDiedError, WorkerTimeoutError: if the worker has ended, or does not read the command.
            WrongStateError: if the operator is not interactive, or was stopped.
            ClosedError: after `end`.
            MessageError: for a value that JSON cannot hold.
        """
        # UNSET fields are left out of the line, as older workers may not know them.
        steps = UNSET if max_steps is None else max_steps
        seed = seed if seed is None else int(seed)
        command = ResetCommand(seed=seed, max_steps=steps, frame=frame or UNSET)
        if agent_seed is not None:
            command.agent_seed = int(agent_seed)
        self._send("reset", command)

    def send_step(
        self, *, frame: Frame = None, last_frame: Frame = None, action: Any = UNSET
    ) -> None:
        """Take one step; the worker replies `step`, followed by `episode_end` if the episode ended.

        Args:
            frame: "png" or "rgb" to include a picture in the reply.
            last_frame: the same, but only if the episode ends with this step.
            action: a person's choice, for workers that leave the choice to a person.

        Raises the same errors as `send_reset`.
        """
        self._send(
            "step", StepCommand(frame=frame or UNSET, last_frame=last_frame or UNSET, action=action)
        )

    def send_stop(self) -> None:
        """Ask the worker to exit; it replies `stopped`.

        Once that reply has been read, all processes that the worker started are killed.
        """
        self._send("stop", StopCommand())
        self._is_stopping = True  # only now, as `_send` refuses everything once this is set

    def send_ping(self) -> None:
        """Ask for a `pong`. Raises as `send_reset`."""
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
        """Make the worker a player of a game; it replies `agent_ready`. Raises as `send_reset`."""
        command = InitAgentCommand(game_name=game_name, player_id=player_id, seed=seed)
        # Without it, the worker cannot know the spaces, and exchanges plain JSON values.
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
        """Ask a player for an action; the worker replies `action_selected`. Raises as `send_reset`.

        Observation, legal actions and info are JSON values. `action` is a person's choice.
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
        # Encoded before anything is sent or counted: a value that JSON cannot hold leaves the handle usable.
        command.id = self._owed.next_id()
        line = write_command(command)
        if not self._owed.repeats_ids:
            # Without ids, only time tells replies apart: what arrived before this command cannot answer it.
            self._skip_pending_lines()
        # A timeout passes through: the worker lives. If it took a part of the line, the process refuses any
        # further write, and only `end` is left.
        try:
            self.process.write(line, self.write_timeout_s)
        except WorkerDiedError as error:
            # It may have said why it ends before it died; the pipe keeps that until it is read.
            self._skip_pending_lines()
            raise self._explained(error) from None
        # Only now: a command that was never written gets no reply.
        self._owed.expect_reply_to(name)

    def _check_interactive(self) -> None:
        if not self.interactive:
            # The protocol's description fixes how this message begins.
            raise WrongStateError(
                f"{self.process.name}: Cannot send a command to a non-interactive operator; launch "
                "it with interactive=True"
            )

    # ------------------------------------------------------------------ replies

    def try_read_response(self, timeout: float = 0.1) -> dict[str, Any] | None:
        """Return the next reply to the newest command as a dict, or None after `timeout` seconds.

        Raises:
            WorkerDiedError: if the worker ended, or closed its output. The error holds its exit
                status and the last lines of its log.
            BadReplyError: for a line that is not a reply.
            LineTooLongError: for a line above the size limit. After this error and BadReplyError,
                the next reply can be read.
            WrongStateError: if the operator is not interactive.
            ClosedError: after `end`.
        """
        self._check_interactive()
        deadline, n_lines = monotonic() + timeout, 0
        # One deadline for all lines: skipped ones must not extend the wait.
        while True:
            # The first read gets the whole timeout, so that `timeout=0` still takes a line that is there.
            left_s = deadline - monotonic() if n_lines else timeout
            try:
                line = self.process.try_read_line(max(left_s, 0.0))
            # Raised only after all lines that the worker wrote before its death.
            except WorkerDiedError as error:
                raise self._explained(error) from None
            if line is None:
                return None
            reply = self._wanted_reply(line)
            if reply is not None:
                return reply
            n_lines += 1
            # Past the deadline, lines that have already arrived are still looked through, but a worker that
            # floods its output could keep us here for ever.
            if n_lines >= _AT_ONCE and monotonic() > deadline:
                return None

    def read_response(self, timeout: float = 5.0) -> dict[str, Any]:
        """Return the next reply to the newest command as a dict.

        Raises:
            WorkerTimeoutError: if no reply arrived in `timeout` seconds. The worker is still alive:
                read again to wait longer, or send another command.
            others: the other errors of `try_read_response`.
        """
        reply = self.try_read_response(timeout)
        if reply is not None:
            return reply
        # The reply stays owed: a later read can still return it.
        awaited = self._owed.awaited
        what = "wrote nothing" if awaited is None else f"did not answer {awaited!r}"
        notes = ""
        if self._n_left_out:
            notes = f"; skipped {self._n_left_out:,} lines that answer no open command"
        raise WorkerTimeoutError(
            f"{self.process.name}: process {self.pid} {what} within {timeout:g} s{notes}"
        )

    def _wanted_reply(self, line: bytes) -> dict[str, Any] | None:
        """Return the reply in a line, or None if it does not answer the newest command."""
        try:
            reply = read_reply(line)
        except MessageError as error:
            if self._is_late(line, error.id):
                self._n_left_out += 1
                return None
            # Raised, not skipped: if this was the awaited reply, no other will follow.
            raise self._bad(line, error) from None
        if self._owed.match(reply):
            if reply["type"] == "stopped":
                # Its last message. Without this, processes it had started would outlive it.
                self.process.end(_LEAVE_S)
            return reply
        self._n_left_out += 1
        if reply["type"] == "error":
            # Kept for a later death: "could not load the policy" is the cause, the exit code is not.
            self._complaint = reply["message"]
        return None

    def _is_late(self, line: bytes, number: int | str | None) -> bool:
        """Return whether an unreadable line answers an earlier command, which nobody waits for any more."""
        if number is None and not _is_reply(line):
            return False  # a library's print, perhaps: it uses up no command, the reply may still arrive
        return not self._owed.fail(number)

    def _bad(self, line: bytes, error: MessageError) -> BadReplyError:
        # Only the beginning: a line may be many megabytes long.
        beginning = line[:_SHOWN].decode(errors="backslashreplace")
        return BadReplyError(
            f"{self.process.name}: process {self.pid} wrote a line that is not a reply: {error}; the line "
            f"begins with {beginning!r}"
        )

    def _skip_pending_lines(self) -> None:
        """Consume the lines that have arrived, without waiting; at most `_AT_ONCE` of them."""
        # Bounded: a worker that floods its output must not keep the caller from sending.
        for _ in range(_AT_ONCE):
            try:
                line = self.process.try_read_line(0.0)
                if line is None:
                    return
                reply = read_reply(line)
            except (LineTooLongError, MessageError):
                self._n_left_out += 1
            except WorkerError:
                return  # not reported here: the write that follows raises with the cause of the death
            else:
                # Matched although nobody reads it: it settles what the worker owes.
                self._owed.match(reply)
                self._n_left_out += 1
                if reply["type"] == "error":
                    self._complaint = reply["message"]

    def _explained(self, error: WorkerDiedError) -> WorkerDiedError:
        """Add to a death the last error reply that the caller never saw."""
        if self._complaint is not None:
            error.args = (f"{error}; it had reported: {self._complaint}",)
        return error

    # ------------------------------------------------------------------ the end

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the worker to exit by itself. Returns its exit code, or None if it is still running."""
        return self.process.wait(timeout_s)

    def end(self, grace_s: float = 2.0) -> None:
        """End the worker and all processes it started. Idempotent.

        The worker gets a `stop` command and `grace_s` seconds to exit, then SIGTERM, then SIGKILL.
        Output that was not read is lost.
        """
        self.ask_to_stop()
        # A worker whose agent is thinking does not read `stop`, and is terminated when the grace is over.
        # Signals go to the whole process group.
        self.process.end(grace_s)

    def ask_to_stop(self) -> None:
        """Send a last `stop` if that does not block, and close the worker's input."""
        if self.interactive and not self._is_stopping and not self.process.ended:
            # Set before the write: after half a command the stream is unusable, so nothing may follow.
            self._is_stopping = True
            with contextlib.suppress(WorkerError, ClosedError):
                # No waiting: a worker that does not read is ended by signals anyway.
                self.process.write(write_command(StopCommand()), 0.0)
        # The end of input ends workers that missed the command, foreign ones included.
        self.process.close_input()

    def close(self) -> None:
        """End the worker. Idempotent."""
        self.end()


def await_replies(
    handles: Sequence[OperatorProcessHandle], timeout: float = 5.0
) -> list[OperatorProcessHandle]:
    """Wait until a worker has written a line or ended. Returns the handles of all that have.

    `try_read_response(0)` of each then returns a reply, raises, or returns None for a skipped line.

    Returns:
        An empty list after `timeout` seconds, or if `handles` is empty.
    """
    # One wait over all of them: a death is noticed while the others are silent.
    ready = await_lines([handle.process for handle in handles], timeout)
    return [handle for handle in handles if handle.process in ready]


def _is_reply(line: bytes) -> bool:
    """Return whether an unreadable line was meant as a reply: an object with the type of one."""
    # A reply with a wrong field still uses up its command; a library's print does not.
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("type") in REPLIES
