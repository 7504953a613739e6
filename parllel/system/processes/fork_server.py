"""Private instance of multiprocessing's fork server, with time-outs and without files.

    parent                                          server                  child
    connect -- descriptors, over a socket -------->  fork --------------->  starts
            <- child's process id, over a pipe ----  writes it
            <- its exit code, over the same pipe --  waits for it <-------  ends
    "alive" pipe hangs up with the parent -------->  exits

The server has imported numpy and gymnasium, and none of the user's modules. Over multiprocessing's
ForkServer, which does the work, this adds time-outs for a server that is stopped, a socket path that is short
enough for any TMPDIR, and a socket without a name, so that no file remains when the parent is killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from multiprocessing import connection, resource_tracker, util
from pathlib import Path
from time import monotonic
from typing import Any

from parllel.errors import WorkerDiedError, WorkerTimeoutError
from parllel.system.counted_time import SLICE_S, counted_s
from parllel.system.limits import limits_text

START_S = 60.0  # for the first fork, before which the server imports modules; default for others
# Variables that Python and the libraries imported by the server read at their start. A child gets all its
# variables with its target, so others of this process, such as keys, are never in the server's memory.
_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ"),
    *("TMPDIR", "TMP", "TEMP", "XDG_*", "VIRTUAL_ENV", "CONDA_PREFIX", "__PYVENV_LAUNCHER__"),
    *("PYTHON*", "LD_*", "DYLD_*", "MALLOC_*", "GLIBC_TUNABLES", "COVERAGE_PROCESS_*"),
    *("PARLLEL_WORKER", "OMP_*", "OPENBLAS_*", "MKL_*", "KMP_*", "GOMP_*", "BLIS_*"),
    *("NUMEXPR_*", "VECLIB_*", "NPY_*", "NUMBA_*", "TORCH_*", "PYTORCH_*", "TORCHINDUCTOR_*"),
    *("CUDA_*", "NVIDIA_*", "HIP_*", "ROCR_*"),
)
_FIRST, _LAST = "parllel.system.processes.in_fork_server", "parllel.system.processes.frozen_imports"
# Linux can open a socket with O_PATH, and reach it through /proc after its name has been removed.
_HAS_PATHS = hasattr(os, "O_PATH") and Path("/proc/self/fd").is_dir()

_preload: list[str] = []
_server: ForkServer | None = None


class ForkServer:
    """The fork server of one process; started with the first child.

    Attributes:
        owner: id of the process that made this object. A fork of that process makes its own server.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        from multiprocessing import forkserver

        self.owner = os.getpid()
        # A separate instance, as the user may configure and use multiprocessing's global one.
        self._server: Any = forkserver.ForkServer()
        self._server.set_forkserver_preload([_FIRST, *preload, _LAST])
        # An O_PATH descriptor of the server's socket, to connect after its name has been removed.
        self._socket = -1
        self._answered: int | None = None  # id of a server process that has already started a child

    @property
    def pid(self) -> int | None:
        """The server's process id, or None if it has not been started."""
        pid = self._server._forkserver_pid
        return None if pid is None else int(pid)

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that this process holds open for the server."""
        alive = self._server._forkserver_alive_fd
        return [fd for fd in (alive, self._socket) if fd is not None and fd >= 0]

    def connect(self, fds: list[int], timeout_s: float) -> tuple[int, int]:
        """Fork a child in the server.

        fds: descriptors to pass to the child.
        timeout_s: time limit for the server. At least START_S the first time, when the server imports
            modules.

        Returns:
            Descriptors of two pipes: one to read the child's process id and later its exit code, one to
            write its pickled target to.

        Raises:
            WorkerTimeoutError: if the server does not answer in time. It is killed, and the next start uses a
                new one.
            WorkerDiedError: if the server ends instead.
            OSError: if a limit of this process is reached.
        """
        with sigint_held(tracked=True):
            self._ensure_running()
        _reserve_files(len(fds))
        # Otherwise a short time-out would kill every new server before it is ready.
        timeout_s = timeout_s if self.pid == self._answered else max(timeout_s, START_S)
        began = monotonic()
        try:
            with self._bounded_handshake(timeout_s):
                reading, writing = self._server.connect_to_new_process(fds)
        except (ConnectionError, EOFError) as error:
            # It ended after accepting our connection and before reading our request.
            raise self._died() from error
        try:
            # Before multiprocessing writes the target and reads the id: both calls would block for ever if
            # the server is stopped.
            self._await_fork(reading, timeout_s - (monotonic() - began), timeout_s)
        except BaseException:
            # Also on KeyboardInterrupt: the caller gets no descriptors to close.
            os.close(reading)
            os.close(writing)
            raise
        self._answered = self.pid
        return reading, writing

    def _ensure_running(self) -> None:
        try:
            self._ensure_one()
        except ChildProcessError:
            # It has ended and was collected by other code of this program, e.g. `os.waitpid(-1, 0)`.
            # multiprocessing cannot wait for it any more, and would fail at every further start.
            self._forget()
            self._ensure_one()

    def _ensure_one(self) -> None:
        with replaced_in_thread(util, "spawnv_passfds", _spawn_with_few_variables):
            self._ensure_named()

    def _ensure_named(self) -> None:
        # Without /proc, as on macOS, use multiprocessing's folder, which remains until exit.
        if not _HAS_PATHS:
            self._server.ensure_running()
            return
        made: list[str] = []
        with replaced_in_thread(
            connection, "arbitrary_address", lambda family: _short_address(made)
        ):
            try:
                self._server.ensure_running()
                # `made` is empty if the server already runs; then there is no new socket either.
                if made:
                    self._keep_socket(made[1])
            finally:
                # Immediately, not at exit: a parent that is killed would leave the folder behind.
                if made:
                    _remove(*made)

    def _keep_socket(self, address: str) -> None:
        if self._socket >= 0:  # belongs to a server that has died
            os.close(self._socket)
        self._socket = os.open(address, os.O_PATH | os.O_CLOEXEC)
        self._server._forkserver_address = f"/proc/self/fd/{self._socket}"

    def _await_fork(self, reading: int, left_s: float, timeout_s: float) -> None:
        """Wait until the child's process id has arrived, and leave it for multiprocessing to read.

        left_s: remaining part of timeout_s, which is for the message.
        """
        poller = select.poll()
        poller.register(reading, select.POLLIN)
        while True:
            slice_s, began = max(min(left_s, SLICE_S), 0.0), monotonic()
            if events := poller.poll(slice_s * 1000):
                break
            left_s -= counted_s(began, slice_s)
            if left_s <= 0:
                raise self._late(timeout_s)
        # A hang-up without an id: the server has ended.
        if not events[0][1] & select.POLLIN:
            raise self._died()

    def _died(self) -> WorkerDiedError:
        return WorkerDiedError(
            f"fork server, process {self.pid}: ended instead of starting a process; {limits_text()}"
        )

    @contextmanager
    def _bounded_handshake(self, timeout_s: float) -> Iterator[None]:
        """Limit the time of the key exchange that begins each request since Python 3.14."""
        if not hasattr(self._server, "_forkserver_authkey"):
            yield
            return
        # The exchange reads from the socket inside multiprocessing, where we cannot poll. Killing the server
        # from a thread closes the socket and so ends that read. `late` tells whether the timer did it: its
        # thread may still live when the read ends.
        late, pid = threading.Event(), self.pid
        assert pid is not None

        def end() -> None:
            late.set()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        bound = threading.Timer(min(timeout_s, threading.TIMEOUT_MAX), end)
        bound.start()
        try:
            yield
        except (EOFError, OSError) as error:
            if not late.is_set():  # not caused by the timer
                raise
            raise self._late(timeout_s) from error
        finally:
            bound.cancel()
            # Joined: a timer that has just fired must not kill the next server, or a later process with this
            # id.
            bound.join()

    def _late(self, timeout_s: float) -> WorkerTimeoutError:
        pid = self.pid
        # Killed even if it is only slow: a stopped server would delay every later start as well.
        self.kill()
        return WorkerTimeoutError(
            f"fork server, process {pid}: did not start a process within {timeout_s:g} s (perhaps it was "
            "stopped) and was killed; the next start uses a new one"
        )

    def kill(self) -> None:
        """Kill the server; its children continue."""
        global _server
        if _server is self:
            _server = None
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            # Collected here, as multiprocessing collects only a server that it finds dead itself.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._forget()

    def _forget(self) -> None:
        for fd in self.descriptors:
            os.close(fd)
        # Otherwise multiprocessing would wait for this process, and close these descriptors a second time.
        self._server._forkserver_pid = None
        self._server._forkserver_alive_fd = None
        self._socket = -1


@contextmanager
def replaced_in_thread(module: Any, name: str, ours: Callable[..., Any]) -> Iterator[None]:
    """Replace a function of a multiprocessing module for the context, in this thread only."""
    # The user's code may start processes and open sockets in other threads meanwhile.
    thread, theirs = threading.get_ident(), getattr(module, name)

    def function(*args: Any) -> Any:
        return (ours if threading.get_ident() == thread else theirs)(*args)

    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, theirs)


@contextmanager
def sigint_held(*, tracked: bool) -> Iterator[None]:
    """Block SIGINT (Ctrl-C), so that a process started in the context begins with it blocked.

    A terminal sends it to all foreground processes. A child ignores it once it has set itself up; before
    that it would die with a traceback.

    tracked: whether multiprocessing starts its resource tracker for the process.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    if tracked:  # first, as starting the tracker unblocks the signal
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def preload_in_forkserver(module: str) -> None:
    """Import `module` in the fork server, so that children need not. Call before the first child starts."""
    if module not in _preload:
        _preload.append(module)


def fork_server() -> ForkServer:
    """Return the fork server of this process, making one if needed."""
    global _server
    # After a fork the global is still the parent's server, which multiprocessing would take for a child of
    # this process and fail to wait for.
    if _server is None or _server.owner != os.getpid():
        _server = ForkServer(_preload)
    return _server


def forkserver_pid() -> int | None:
    """Return the process id of this process's fork server, or None if none has been started."""
    return None if _server is None or _server.owner != os.getpid() else _server.pid


def forkserver_descriptors() -> list[int]:
    """Return the descriptors that this process holds open for its fork server."""
    return [] if _server is None or _server.owner != os.getpid() else _server.descriptors


def leave_to_parent() -> None:
    """Close a child's copy of the pipe by which the fork server notices the end of the parent.

    multiprocessing passes the pipe to every child, so that a child may use the server too. A process forked
    by the child would inherit it and, if it outlives the parent, keep the server alive.
    """
    from multiprocessing import forkserver

    theirs: Any = forkserver._forkserver  # type: ignore[attr-defined]
    # If there is a process id, the pipe belongs to a server that this process started itself.
    if theirs._forkserver_pid is None and theirs._forkserver_alive_fd is not None:
        fd, theirs._forkserver_alive_fd = theirs._forkserver_alive_fd, None
        with contextlib.suppress(OSError):
            os.close(fd)


def _reserve_files(n: int) -> None:
    """Check that `n` more files can be opened, plus four pipe ends, a socket and a spare. Raises OSError.

    A request that fails halfway, because this process has too many open files, would kill the server.
    """
    with contextlib.ExitStack() as stack:
        for _ in range(n + 6):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))


def _short_address(made: list[str]) -> str:
    """Make a folder for a socket; return the socket's address in it.

    made: receives the arguments of `_remove`: the folder, the address, and a descriptor of the folder.
    """
    folder = tempfile.mkdtemp(prefix="parllel-")
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    # Through the descriptor, as a socket's address is limited to some 100 characters, and TMPDIR may be
    # longer.
    made += [folder, f"/proc/self/fd/{descriptor}/socket", str(descriptor)]
    return made[1]


def _remove(folder: str, address: str, descriptor: str) -> None:
    for remove, path in ((os.unlink, address), (os.rmdir, folder)):
        with contextlib.suppress(OSError):
            remove(path)
    os.close(int(descriptor))


def _spawn_with_few_variables(path: Any, args: Sequence[Any], fds: Sequence[int]) -> int:
    """Start a program like multiprocessing, but with only the variables of `_VARIABLES`."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if any(fnmatchcase(name, pattern) for pattern in _VARIABLES)
    }
    started = subprocess.Popen(args, executable=path, pass_fds=fds, env=variables)
    # multiprocessing waits for the process; without a return code this object would, too.
    started.returncode = 0
    return started.pid
