"""Turn a fork of the fork server into a foreign program.

    parent                       fork server              fork, then program
    request, pipes, liveness --> forks -----------------> become_program
    reads "go" or an error <----------------------------- just before exec / instead of it
    the read then ends     <----------------------------- exec closes the pipe
    ends, however it does  ----> kills all below it       killed by the kernel with its group

Started from the fork server, a program has two guards that outlast `exec`: the server is the parent of
whatever the program leaves behind, in any session; and the kernel kills the program's group when the liveness
pipe hangs up, even if the server was killed together with the parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

from parllel.system.processes.liveness import kill_group_with_parent

GO = b"go"
# Scripts of shells use the numbers up to 9 for files of their own, which would close the guard.
_HIGH = 100
# Python ignores the first two, which a pipeline of programs relies on; the others may be ignored because the
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
        stdin, stdout, stderr: what the program gets as such.
        report: gets `GO` before the program starts, or "step number text" of an OSError.
        liveness: the pipe that hangs up when the parent ends.
        command: the program, to be found by the PATH of `environment`, and its arguments.
        folder: where it runs.
    """
    step, said = "setting it up", report.fileno()
    try:
        # Out of the way of 0, 1 and 2, which may be free here if the parent runs without a terminal.
        ends = [moved_up(end.fileno(), 3) for end in (stdin, stdout, stderr)]
        said = moved_up(said, 3)
        # Ctrl-C in a terminal reaches only the parent; and a leader of a session cannot leave its group.
        os.setsid()
        # After setsid: what is killed with the parent is the group of this moment.
        guard = moved_up(kill_group_with_parent(liveness.fileno()), _HIGH)
        os.set_inheritable(guard, True)
        for number, end in enumerate(ends):
            os.dup2(end, number)
        # Descriptors that came over a socket are inherited by programs: among them is the pipe by which the
        # fork server notices the end of the parent.
        _close_all_but({0, 1, 2, said, guard})
        _reset_signals()
        step = "entering its folder"
        os.chdir(folder)
        step = "starting it"
        os.write(said, GO)
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        _tell(said, f"{step}\n{error.errno}\n{error.strerror}")
    except BaseException as error:
        _tell(said, f"{step}\n0\n{type(error).__name__}: {error}")
    finally:
        os._exit(127)


def moved_up(fd: int, least: int) -> int:
    """Return a copy of a descriptor with a number of at least `least`, which `exec` closes."""
    import fcntl

    with contextlib.suppress(OSError):  # the limit of open files is below that number
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
    return fd


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(int(name))


def _reset_signals() -> None:
    for name in _RESET:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _tell(said: int, text: str) -> None:
    with contextlib.suppress(OSError):  # the parent has ended
        os.write(said, text.encode(errors="replace"))
