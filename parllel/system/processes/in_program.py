"""Replacement of a fork of the fork server by a foreign program.

    parent                       fork server              fork, then program
    request, pipes, liveness --> forks -----------------> become_program
    reads "go" or an error <----------------------------- just before exec / instead of it
    the read then ends     <----------------------------- exec closes the pipe
    ends, however it does  ----> kills all below it       killed by the kernel with its group

Started from the fork server, a program has two guards that outlast `exec`: the server adopts whatever the
program leaves behind, in any session; and the kernel kills the program's group when the liveness pipe hangs
up, even if the server was killed together with the parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

from parllel.system.processes.liveness import kill_group_with_parent

GO = b"go"
# Shell scripts use descriptors up to 9 for their own files, which would close the guard.
_HIGH = 100
# Python ignores the first two, on which pipelines of programs rely; the others may be ignored because the
# parent was started in the background.
_RESET = ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGQUIT", "SIGTERM")


def become_program(
    stdin: Connection,
    stdout: Connection,
    stderr: Connection,
    report: Connection,
    liveness: Connection,
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
) -> None:
    """Replace this process by a program; never returns.

    Args:
        stdin, stdout, stderr: the program's standard streams.
        report: receives `GO` before the program starts, or "step number text" of an error.
        liveness: the pipe that hangs up when the parent ends.
        command: the program, found by the PATH of `environment`, and its arguments.
        folder: the working directory.
    """
    step, report_fd = "setting it up", report.fileno()
    try:
        # Moved above 0, 1 and 2, which may be free here if the parent runs without a terminal.
        ends = [moved_up(end.fileno(), 3) for end in (stdin, stdout, stderr)]
        report_fd = moved_up(report_fd, 3)
        # So that Ctrl-C in a terminal reaches only the parent; and a session leader cannot leave its group.
        os.setsid()
        # After setsid: the kernel will kill the group that the process has at this moment.
        guard = moved_up(kill_group_with_parent(liveness.fileno()), _HIGH)
        os.set_inheritable(guard, True)
        for number, end in enumerate(ends):
            os.dup2(end, number)
        # Descriptors received over a socket are inherited by programs. Among them is the pipe by which the
        # fork server notices the end of the parent.
        _close_all_but({0, 1, 2, report_fd, guard})
        _reset_signals()
        step = "entering its folder"
        os.chdir(folder)
        step = "starting it"
        os.write(report_fd, GO)
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        _report(report_fd, f"{step}\n{error.errno}\n{error.strerror}")
    except BaseException as error:
        _report(report_fd, f"{step}\n0\n{type(error).__name__}: {error}")
    finally:
        os._exit(127)


def moved_up(fd: int, least: int) -> int:
    """Return a copy of a descriptor with a number of at least `least`, closed by `exec`."""
    import fcntl

    with contextlib.suppress(OSError):  # the limit of open files may be below that number
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
    return fd


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the listing's own descriptor is already closed
                os.close(int(name))


def _reset_signals() -> None:
    for name in _RESET:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _report(report_fd: int, text: str) -> None:
    with contextlib.suppress(OSError):  # the parent has ended
        os.write(report_fd, text.encode(errors="replace"))
