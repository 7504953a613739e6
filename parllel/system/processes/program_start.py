"""Start of a foreign program with pipes and selected variables; reports immediately if it cannot start.

    this process                                             the program
    input   (write end) ---------- standard input -------->  reads
    output  (read end)  <--------- standard output --------  writes
    errors  (a file, shared) <---- standard error ---------  writes

On Linux it is forked by the fork server (in_program.py). Elsewhere, and in daemonic processes of
multiprocessing, which may not use the server, it is started by subprocess.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from fnmatch import fnmatchcase
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import Any, NamedTuple

from parllel.errors import WorkerDiedError, WorkerTimeoutError
from parllel.system.counted_time import SLICE_S, counted_s
from parllel.system.processes.in_program import GO, become_program, moved_up
from parllel.system.processes.launch import start_lean, unchanged_environment
from parllel.system.processes.liveness import liveness_connection
from parllel.system.processes.watched_process import StartedProcess

_END_S = 5.0
# Variables for files, libraries, language and terminal; none that holds a secret. Those in the last row are
# for Windows, where many programs fail without them.
PASSED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TMPDIR", "TMP", "TEMP"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT"),
)


class ProgramStart(NamedTuple):
    """A started program and our ends of its pipes; `output` is -1 without a pipe."""

    process: StartedProcess
    input: int
    output: int


def start_program(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    errors: int,
    output: int | None,
    timeout_s: float,
) -> ProgramStart:
    """Start a program in a new session.

    errors: descriptor of the file for its standard error.
    output: descriptor of the file for its standard output; None for a pipe.
    timeout_s: time limit for the fork server, and then for `exec`.

    Raises:
        OSError: FileNotFoundError, PermissionError or another subclass, about the command or the folder.
        WorkerDiedError, WorkerTimeoutError: if the fork server ended, or does not answer.
    """
    # Our copies of its ends are always closed: while open, the output would not end and writes would not
    # fail. Our own ends are closed only if it did not start.
    with ExitStack() as theirs, ExitStack() as ours:
        stdin, mine_in = _pipe(theirs, ours)
        if output is None:
            mine_out, stdout = _pipe(ours, theirs)
        else:
            mine_out, stdout = -1, output
        start = _by_fork_server if _has_guards() else _by_subprocess
        process = start(command, environment, folder, (stdin, stdout, errors), timeout_s)
        # From here on our ends belong to the caller: no error may close them any more.
        ours.pop_all()
    return ProgramStart(process, mine_in, mine_out)


def program_environment(given: Mapping[str, str], passed: Iterable[str]) -> dict[str, str]:
    """Return the allowed variables of this process, overridden by the given ones.

    given: variables to set.
    passed: names, or patterns such as "OMP_*", of further variables to pass on if set.

    Raises:
        TypeError, ValueError: for an invalid name or value.
    """
    # Checked here, as it would otherwise look like a death of the program.
    for name, value in given.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ValueError(f"environment: {name!r}: expected a name without '=' and zero bytes")
        if not isinstance(value, str):
            raise TypeError(f"environment: {name!r}: expected text, got {type(value).__name__}")
        if "\0" in value:  # the value is not shown, as it may be a secret
            raise ValueError(f"environment: {name!r}: expected text without zero bytes")
    patterns = (*PASSED_VARIABLES, *passed)
    chosen = {
        name: value
        for name, value in unchanged_environment().items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    return {**chosen, **given}


def _has_guards() -> bool:
    """Return whether programs can be ended with this process, however it ends."""
    # multiprocessing refuses to start anything from a daemonic process.
    daemonic = multiprocessing.current_process().daemon
    return sys.platform.startswith("linux") and not daemonic


def _pipe(of_read_end: ExitStack, of_write_end: ExitStack) -> tuple[int, int]:
    ends = []
    for fd, owner in zip(os.pipe(), (of_read_end, of_write_end), strict=True):
        # This process may have closed 0, 1 or 2. A pipe with such a number would receive whatever is written
        # to the standard streams, and the resource tracker, which inherits 2, would hold it open.
        high = moved_up(fd, 3) if fd < 3 and os.name != "nt" else fd
        owner.callback(os.close, high)
        if high != fd:
            os.close(fd)
        ends.append(high)
    return ends[0], ends[1]


# ---------------------------------------------------------------------- by the fork server


def _by_fork_server(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    files: tuple[int, int, int],
    timeout_s: float,
) -> StartedProcess:
    with ExitStack() as stack:
        # Connections, which multiprocessing can pass, of copies, as they close their descriptors.
        streams = [
            stack.enter_context(Connection(os.dup(fd), readable=i == 0, writable=i > 0))
            for i, fd in enumerate(files)
        ]
        heard, report = multiprocessing.Pipe(duplex=False)
        stack.enter_context(heard)
        liveness = liveness_connection()
        assert liveness is not None
        with report, liveness:
            args = (*streams, report, liveness, command, environment, folder)
            process: Any = start_lean("forkserver", become_program, args, timeout_s)
        # Our copy of the report's write end is closed by now, so only `exec` or a death ends the read.
        try:
            _check_report(heard.fileno(), command[0], folder, timeout_s)
        except BaseException:
            # It may already be the program, which the caller cannot reach.
            process.kill()
            process.join(_END_S)
            with suppress(ValueError):  # still running: unkillable, in the kernel
                process.close()
            raise
    started: StartedProcess = process
    return started


def _check_report(heard: int, program: str, folder: str, timeout_s: float) -> None:
    """Wait until the program has started. Raises the error if it could not."""
    report, left_s = b"", timeout_s
    # Read to the end of the pipe: `GO` precedes `exec`, and only the end shows that `exec` succeeded.
    while True:
        began = monotonic()
        slice_s = max(min(left_s, SLICE_S), 0.0)
        if wait([heard], slice_s):
            part = os.read(heard, 4096)
            if not part:
                break
            # A part of a message, perhaps: the pipe delivers bytes.
            report += part
        left_s -= counted_s(began, slice_s)
        if left_s <= 0:
            raise WorkerTimeoutError(
                f"{program}: did not start within {timeout_s:g} s; it was killed"
            )
    if report == GO:
        return
    # An error of `exec` itself follows `GO`.
    step, _, rest = report.decode(errors="replace").removeprefix(GO.decode()).partition("\n")
    number, _, text = rest.partition("\n")
    if not step:
        raise WorkerDiedError(f"{program}: the process ended before the program could start in it")
    if not int(number):
        raise WorkerDiedError(f"{program}: {step} failed: {text}")
    raise _start_error(int(number), program, folder, step.startswith("entering"))


def _start_error(number: int, program: str, folder: str, by_folder: bool) -> OSError:
    """Build the FileNotFoundError, PermissionError or other OSError about a command or its folder."""
    if by_folder:
        return OSError(
            number, f"could not enter the folder for {program}: {os.strerror(number)}", folder
        )
    return OSError(number, f"could not start the program: {os.strerror(number)}", program)


# ---------------------------------------------------------------------- by subprocess


class _Popen:
    """A subprocess.Popen with the interface of a multiprocessing.Process."""

    def __init__(self, popen: subprocess.Popen[bytes], sentinel: int) -> None:
        self._popen = popen
        self._sentinel = sentinel
        self.pid = popen.pid
        self.kill = popen.kill

    @property
    def sentinel(self) -> int:
        # The process's handle on Windows; elsewhere a pipe that the program holds open.
        return self._sentinel if self._sentinel >= 0 else int(self._popen._handle)  # type: ignore[attr-defined]

    @property
    def exitcode(self) -> int | None:
        return self._popen.poll()

    def join(self, timeout: float | None = None) -> None:
        try:
            self._popen.wait(timeout)
        # `multiprocessing.Process.join` returns without an error, and callers
        # read the exit code next.
        except subprocess.TimeoutExpired:
            return

    def close(self) -> None:
        if self._popen.poll() is None:
            # As `multiprocessing.Process` does; WatchedProcess suppresses it.
            raise ValueError("the program still runs")
        if self._sentinel >= 0:
            os.close(self._sentinel)
            self._sentinel = -1


def _by_subprocess(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    files: tuple[int, int, int],
    timeout_s: float,
) -> StartedProcess:
    # Popen waits for `exec` itself, without a time limit.
    stdin, stdout, stderr = files
    with ExitStack() as theirs, ExitStack() as ours:
        # A pipe that the program inherits and never writes to; it hangs up when the program ends,
        # and with it every process that has inherited the pipe in turn. Where the system has
        # process descriptors, WatchedProcess waits for these instead.
        sentinel, held = (-1, -1) if os.name == "nt" else _pipe(ours, theirs)
        try:
            popen = subprocess.Popen(
                list(command),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=dict(environment),
                cwd=folder,
                pass_fds=() if held < 0 else (held,),
                # A separate group, which can be killed with everything that it has started.
                start_new_session=True,
            )
        except OSError as error:
            # Popen raises the same error for a missing program and a missing folder.
            by_folder = not os.path.isdir(folder)
            raise _start_error(error.errno or 0, command[0], folder, by_folder) from None
        ours.pop_all()
    return _Popen(popen, sentinel)
