"""Foreign program as a watched process: started, connected by lines, and ended with its descendants.

    this process                                            the program, in a separate session
    write        ---- standard input, a pipe ------------>  reads, or does not
    read_line    <--- a pipe, read by the caller ---------  writes its standard output
    last_lines   <--- a file -----------------------------  writes its standard error
    died         <--- process descriptor -----------------  ends
    (ends)       ---- liveness pipe, fork server -------->  killed with its descendants (in_program.py)
    (how it is watched and ended: watched_process.py)

A program that writes more than the pipe holds blocks until this process reads, in `read_line`, `write` or
`wait`. Lines written before a death are delivered before the death is reported.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType

from parllel.errors import ClosedError, HalfLineError, WorkerDiedError, WorkerTimeoutError
from parllel.system.limits import limits_explained
from parllel.system.processes.fork_server import START_S
from parllel.system.processes.input_pipe import InputPipe
from parllel.system.processes.line_reader import LineReader
from parllel.system.processes.orphans import collect, environment_mark, kill_marked
from parllel.system.processes.process_table import ProcessEntry
from parllel.system.processes.program_start import program_environment, start_program
from parllel.system.processes.watched_process import WatchedProcess
from parllel.types import Closeable

if sys.platform != "win32":
    import fcntl

_QUOTED_LINES = 20  # of standard error, in messages
_MAX_QUOTED_BYTES = 2**14
_JOIN_S = 5.0
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Program(WatchedProcess, Closeable):
    """A running program, started from a command line.

    Args:
        command: the program, found by its PATH, and its arguments; no shell is involved. Everyone on this
            machine can read the arguments, so pass secrets in `environment`.
        name: name for messages; default the first word of the command.
        environment: variables to set. Of this process's variables only `PASSED_VARIABLES` are passed on.
        passed: names or patterns of further variables to pass on, such as "CUDA_VISIBLE_DEVICES" or "OMP_*".
        cwd: the working directory; default that of this process.
        lines: read its standard output as lines, for `read_line`; otherwise it is discarded.
        output_to_stderr: send output that would be discarded to its standard error.
        stderr: path of a file to which its standard error is appended; default an unnamed file, which
            vanishes afterwards. Its size is not limited. A pipe or terminal has no `last_lines`.
        start_timeout_s: time limit for starting: the fork server, and then `exec`.
        max_line_bytes: a longer line is dropped and reported by one LineTooLongError.

    Raises:
        FileNotFoundError: if the program, its folder, or the interpreter of a script does not exist.
        PermissionError: if it may not be executed.
        OSError: if it cannot be executed for another reason, or a limit of files or processes is reached.
        WorkerDiedError, WorkerTimeoutError: if the fork server ended, or does not answer.
        TypeError, ValueError: for an invalid command or variables, such as an empty list or a word with a
            zero byte; for limits below 1.

    On Linux a program ends with this process, however that ends (SIGKILL included), together with what it
    started in other sessions. It is forked by the fork server of this process, from which it inherits umask,
    limits and priority. (If the server is killed at the same moment, e.g. by a signal to the group of both,
    processes in other sessions survive.) On macOS and Windows, and in daemonic processes of multiprocessing,
    a killed parent only closes the program's input.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        name: str | None = None,
        environment: Mapping[str, str] = _NOTHING,
        passed: Iterable[str] = (),
        cwd: str | os.PathLike[str] | None = None,
        lines: bool = True,
        output_to_stderr: bool = False,
        stderr: str | os.PathLike[str] | None = None,
        start_timeout_s: float = START_S,
        max_line_bytes: int = 2**27,
    ) -> None:
        words = _words(command)
        name = os.path.basename(words[0]) if name is None else name
        if max_line_bytes < 1:
            raise ValueError(f"{name}: max_line_bytes: expected at least 1, got {max_line_bytes}")
        mark = secrets.token_hex(16)
        # The mark last: `environment` may be a copy of os.environ, with the mark of this process.
        variables = {**program_environment(environment, passed), **environment_mark(mark)}
        with limits_explained(f"{name}: could not start it, which takes 21 open files"):
            self._errors = _ErrorFile(stderr)
            try:
                # Made absolute here, as the fork server keeps the folder in which it was started.
                folder = os.path.abspath(os.getcwd() if cwd is None else cwd)
                with ExitStack() as stack:
                    output = None if lines else self._errors.fd
                    if not (lines or output_to_stderr):
                        # Not closed: the next file that the program opens would get this number, and the
                        # output.
                        output = os.open(os.devnull, os.O_WRONLY)
                        stack.callback(os.close, output)
                    start = start_program(
                        words, variables, folder, self._errors.fd, output, start_timeout_s
                    )
            except BaseException:
                self._errors.close()
                raise
        # `_clean_up` reads these, and may run as soon as the base class knows this object.
        self._swept: list[ProcessEntry] | None = None  # killed processes with its mark
        self._last_lines: list[str] | None = None  # set when the file is closed
        self._output: LineReader | None = None
        # Right after the start, as from here on an exit of this process ends the program.
        super().__init__(start.process, name=name, mark=mark)
        self._why_ended = "used after it was ended"
        # On Windows the sentinel is a handle, which cannot be polled together with pipes.
        death = -1 if os.name == "nt" else self.sentinel
        self._input = InputPipe(start.input, death)
        try:
            if lines:
                self._output = LineReader(
                    start.output, death, name=name, max_line_bytes=max_line_bytes
                )
        except BaseException:
            self.kill()
            raise

    # ------------------------------------------------------------------ talking

    def write(self, message: bytes | bytearray | memoryview, timeout_s: float = 60.0) -> None:
        """Write to the program's standard input.

        Raises:
            WorkerTimeoutError: if the program did not accept it within `timeout_s`. It keeps running. If it
                accepted part of the message, nothing more can be written; the error says so.
            WorkerDiedError: if it has ended, or has closed its input. Its last lines can still be read.
            ClosedError: after `end` or `close_input`, and after part of a message.
        """
        self.check_open()
        try:
            self._input.write(message, timeout_s, self._output)
        except TimeoutError as error:
            taken, then = "nothing", "it does not read its input"
            if error.args[0]:
                taken, then = "only a part", "end it and start another"
            raise WorkerTimeoutError(
                f"{self.name}: process {self.pid} accepted {taken} of "
                f"{memoryview(message).nbytes:,} bytes within {timeout_s:g} s; {then}"
            ) from None
        except BrokenPipeError:
            raise self.death_error("before it took its input") from None
        except ClosedError as error:
            # Part of an earlier message was taken. If the program is dead, that explains more.
            if not self._input.closed and self.died():
                raise self.death_error("before it took its input") from None
            raise ClosedError(f"{self.name}: {error}") from None

    def close_input(self) -> None:
        """Close the program's input. Idempotent."""
        if not self._ended:
            self._input.close()

    def read_line(self, timeout_s: float) -> bytes:
        """Return the next line of the program's standard output, without its newline.

        Raises:
            WorkerTimeoutError: if there was none in time. The program keeps running, and the line may follow.
            HalfLineError: a WorkerDiedError whose `half_line` is the received part of an incomplete line.
            WorkerDiedError: if the program ended or closed its output; says how, with its last lines of
                standard error.
            LineTooLongError: in place of a line above the limit; the next one can be read.
            ClosedError: after `end`.
        """
        line = self.try_read_line(timeout_s)
        if line is None:
            raise WorkerTimeoutError(
                f"{self.name}: process {self.pid} wrote no line within {timeout_s:g} s"
            )
        return line

    def try_read_line(self, timeout_s: float = 0.0) -> bytes | None:
        """Return the next line, or None if there was none within `timeout_s`. Raises as `read_line`."""
        self.check_open()
        output = self.output
        try:
            return output.next(timeout_s)
        except EOFError as ended:
            half = ended.args[0]
        self.check_open()  # another thread may have ended it meanwhile
        if not half:
            raise self.death_error("while its next line was awaited")
        error = HalfLineError(str(self.death_error(f"in a line of which {len(half):,} bytes came")))
        error.half_line = half
        raise error

    @property
    def output(self) -> LineReader:
        """Reader of its standard output, to wait for several programs at once.

        Raises: ValueError if the output is not read as lines.
        """
        if self._output is None:
            raise ValueError(f"{self.name}: was started with lines=False: its output is discarded")
        return self._output

    def last_lines(self, n: int = _QUOTED_LINES) -> list[str]:
        """Return the last lines of its standard error, at most 16 KiB; after `end`, at most twenty lines."""
        if self._last_lines is not None:
            return self._last_lines[-n:] if n > 0 else []
        return self._errors.last_lines(n)

    def death_error(self, doing: str) -> WorkerDiedError:
        """Build the error for a program that has ended or closed a pipe, with its last lines."""
        how = self.exit_text()
        # After exit_text, which waits a while: a pipe may hang up shortly before the process ends.
        if self.alive:
            how = "closed its end of the pipe, but runs on,"
        last_lines = self.last_lines()
        words = "it wrote nothing to its standard error"
        if not self._errors.readable:
            words = "its standard error cannot be read back"
        if last_lines:
            words = "\n  ".join(["the end of its standard error:", *last_lines])
        return WorkerDiedError(f"{self.name}: process {self.pid} {how} {doing}; {words}")

    # ------------------------------------------------------------------ ending

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the program; return its exit code, -N after signal N, or None if it is still running.

        Up to 16 MiB of its output are kept meanwhile; then the program blocks until they are read.
        """
        if self._output is not None and not self._ended:
            # Reading meanwhile, as a program that blocks on a full pipe does not exit.
            timeout_s = self._output.read_until_end(timeout_s)
        return self._await_exit(timeout_s)

    def end(self, grace_s: float = 2.0) -> None:
        """Close the program's input, wait `grace_s` for it to exit, then terminate it, then kill it.

        Its descendants end too, in whatever session, as does every process with its mark in the environment.
        Unread output is lost.
        """
        if self._ended:
            return
        if grace_s > 0:
            self.begin_exit()
        else:
            self._input.close()
        super().end(grace_s)

    def begin_exit(self) -> None:
        """Close the program's input and discard its output, without waiting for it."""
        if self._ended:
            return
        # First, as most programs exit at the end of their input.
        self._input.close()
        if self._output is not None and os.getpid() == self._owner:
            # It may be blocked on a full pipe, and could not exit.
            self._output.discard()

    def close(self) -> None:
        """End the program. Idempotent."""
        self.end()

    def _clean_up(self) -> None:
        try:
            # Its group is dead by now. A process that has detached itself, as daemons do, is no longer a
            # descendant, and may hold the output open.
            killed = kill_marked([self._mark]) if self._swept is None else self._swept
            super()._clean_up()
            if hasattr(os, "killpg"):
                collect(self.pid, killed)
        finally:
            # After the kill, as the reader ends with the process.
            if self._output is not None:
                self._output.close(_JOIN_S)
            # Before the file is closed, as an unnamed file vanishes then.
            self._last_lines = self._errors.last_lines(_QUOTED_LINES)
            self._errors.close()

    def disown(self, why: str) -> None:
        """Leave the program to its owner, in a fork of the owner."""
        super().disown(why)
        # With a copy of the pipe in another process the program would not see the end of its input.
        self._input.abandon()
        if self._output is not None:
            self._output.abandon()


class _ErrorFile:
    """File for a program's standard error: named and appended to, or unnamed.

    The program appends; this process reads the last lines and never writes. An unnamed file vanishes with
    its last user.

    path: None for an unnamed file. A new file is readable only by this user.

    Attributes:
        readable: whether its content can be read back, unlike a pipe's or a terminal's.

    Raises: OSError if it cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        if path is None:
            with tempfile.TemporaryFile(buffering=0) as file:
                self.fd = os.dup(file.fileno())
            if sys.platform != "win32":
                # A script may reopen /dev/stderr, which truncates the file. Without O_APPEND, later writes
                # through the original descriptor would leave a hole.
                fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_APPEND)
        else:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            self.fd = os.open(path, flags, 0o600)
        # Skips what earlier programs have written to the same file.
        status = os.fstat(self.fd)
        self._start = status.st_size
        self.readable = hasattr(os, "pread") and stat.S_ISREG(status.st_mode)

    def last_lines(self, n: int) -> list[str]:
        """Return the last `n` lines, from at most the last 16 KiB; none if the file is not readable."""
        if not self.readable:
            return []
        size = os.fstat(self.fd).st_size
        # A file smaller than at the start was truncated, by the program or a script that it runs.
        begin = max(size - _MAX_QUOTED_BYTES, self._start if size >= self._start else 0)
        # With pread, as the descriptor's position is shared with the program.
        text = os.pread(self.fd, size - begin, begin)
        lines = text.decode(errors="replace").splitlines()
        if begin > self._start and len(lines) > 1:
            lines = lines[1:]  # the first one is incomplete
        return lines[-n:] if n > 0 else []

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _words(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    # A string is also a sequence, of one-letter words.
    if isinstance(command, (str, bytes, os.PathLike)):
        raise TypeError(f"command: expected a list of words, got {command!r}")
    words = [os.fsdecode(word) for word in command]
    if not words:
        raise ValueError("command: expected a program and its arguments, got an empty list")
    if not words[0]:
        raise ValueError("command: expected the name of a program first, got an empty word")
    for word in words:
        if b"\0" in os.fsencode(word):
            raise ValueError(f"command: expected words without a zero byte, got {word!r}")
    return words
