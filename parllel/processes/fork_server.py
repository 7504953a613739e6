"""A fork server of our own, which is never waited for without an end and leaves no files.

    parent --- descriptors, over a socket ----> server --- fork ---> child
           <-- process id, later exit code ---  (a pipe for each child)

It has numpy and gymnasium loaded and nothing of the user's. multiprocessing's server does the work. What that
lacks: a bound on the wait for a server that is stopped, a socket whose path is short wherever TMPDIR is, and
a folder for it that is gone when the parent is killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection
from pathlib import Path
from time import monotonic
from typing import Any, cast

from parllel.counted_time import SLICE_S, counted_s
from parllel.errors import WorkerDiedError, WorkerTimeoutError
from parllel.limits import limits_text

START_S = 60.0  # as a worker has by default for its first answer
_GUARD = "parllel.processes.in_fork_server"
_HAS_PATHS = hasattr(os, "O_PATH") and Path("/proc/self/fd").is_dir()

_preload: list[str] = []
_server: ForkServer | None = None


class ForkServer:
    """The server of this process; it starts with the first child.

    Attributes:
        owner: the process that started it; a fork of that has one of its own.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        from multiprocessing import forkserver

        self.owner = os.getpid()
        self._server: Any = forkserver.ForkServer()
        self._server.set_forkserver_preload([_GUARD, *preload])
        # A descriptor of the socket as a file, by which it is found without a name.
        self._socket = -1

    @property
    def pid(self) -> int | None:
        """Its process id, if it runs."""
        pid = self._server._forkserver_pid
        return None if pid is None else int(pid)

    @property
    def descriptors(self) -> list[int]:
        """What it holds open in this process."""
        alive = self._server._forkserver_alive_fd
        return [fd for fd in (alive, self._socket) if fd is not None and fd >= 0]

    def connect(self, fds: list[int]) -> tuple[int, int]:
        """Have it fork; return where to read what becomes of the child, and where to write to it.

        Raises:
            WorkerTimeoutError: if it does not answer in a minute; it is killed, and the next start has a
                new one.
            WorkerDiedError: if it ends instead.
            OSError: if a limit is reached.
        """
        self._ensure_running()
        _reserve_files(len(fds))
        with self._bounded_handshake():
            reading, writing = self._server.connect_to_new_process(fds)
        try:
            self._await_fork(reading)
        except BaseException:
            os.close(reading)
            os.close(writing)
            raise
        return reading, writing

    def _ensure_running(self) -> None:
        if not _HAS_PATHS:
            self._server.ensure_running()
            return
        places: list[str] = []
        with _address_of_sockets(lambda: _short_address(places)):
            try:
                self._server.ensure_running()
                if places:
                    self._take_socket(places[1])
            finally:
                if places:
                    _remove(*places)

    def _take_socket(self, address: str) -> None:
        if self._socket >= 0:
            os.close(self._socket)
        self._socket = os.open(address, os.O_PATH | os.O_CLOEXEC)
        self._server._forkserver_address = f"/proc/self/fd/{self._socket}"

    def _await_fork(self, reading: int) -> None:
        """Wait for the id of the child, which its pipe brings first, without taking it."""
        poller = select.poll()
        poller.register(reading, select.POLLIN)
        left_s, began = START_S, monotonic()
        while not (events := poller.poll(SLICE_S * 1000)):
            left_s -= counted_s(began, SLICE_S)
            began = monotonic()
            if left_s <= 0:
                raise self._late()
        if not events[0][1] & select.POLLIN:
            raise WorkerDiedError(
                f"fork server, process {self.pid}: it ended instead of starting a process; {limits_text()}"
            )

    @contextmanager
    def _bounded_handshake(self) -> Iterator[None]:
        """Bound the wait for the key of the server, which Python asks for from 3.14 on before all else."""
        if not hasattr(self._server, "_forkserver_authkey"):
            yield
            return
        bound = threading.Timer(START_S, os.kill, (self.pid, signal.SIGKILL))
        bound.start()
        try:
            yield
        except (EOFError, OSError) as error:
            if bound.is_alive():
                raise
            raise self._late() from error
        finally:
            bound.cancel()
            bound.join()

    def _late(self) -> WorkerTimeoutError:
        pid = self.pid
        self.kill()
        return WorkerTimeoutError(
            f"fork server, process {pid}: it did not start a process within {START_S:g} s, as if it was "
            "stopped, and has been killed; the next start has a new one"
        )

    def kill(self) -> None:
        """End it at once; its children live on."""
        global _server
        if _server is self:
            _server = None
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        for fd in self.descriptors:
            os.close(fd)
        self._server._forkserver_pid = None
        self._server._forkserver_alive_fd = None
        self._socket = -1


def preload_in_forkserver(module: str) -> None:
    """Let forkserver children find `module` imported; effective until the first one is started."""
    if module not in _preload:
        _preload.append(module)


def fork_server() -> ForkServer:
    """Return the server of this process, a new one if it has none."""
    global _server
    if _server is None or _server.owner != os.getpid():
        _server = ForkServer(_preload)
    return _server


def forkserver_pid() -> int | None:
    """Return the process id of our fork server, or None if it was not needed yet."""
    return None if _server is None or _server.owner != os.getpid() else _server.pid


def forkserver_descriptors() -> list[int]:
    """Return what our fork server holds open in this process."""
    return [] if _server is None or _server.owner != os.getpid() else _server.descriptors


def leave_to_parent() -> None:
    """In a child, let go of the pipe by which its server knows that the parent lives.

    multiprocessing hands it on to every child, and what a child forks would hold it for ever.
    """
    from multiprocessing import forkserver

    theirs: Any = forkserver._forkserver  # type: ignore[attr-defined]
    if theirs._forkserver_pid is None and theirs._forkserver_alive_fd is not None:
        fd, theirs._forkserver_alive_fd = theirs._forkserver_alive_fd, None
        with contextlib.suppress(OSError):
            os.close(fd)


def _reserve_files(n: int) -> None:
    """Raise OSError if as many more files cannot be opened, and four pipe ends, a socket and a spare one.

    The server does not survive a request that breaks off in the middle.
    """
    with contextlib.ExitStack() as stack:
        for _ in range(n + 6):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))


def _short_address(places: list[str]) -> str:
    """Make a folder for a socket; note it, and the address there, which is short however long TMPDIR is."""
    folder = tempfile.mkdtemp(prefix="parllel-")
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    places += [folder, f"/proc/self/fd/{descriptor}/socket", str(descriptor)]
    return places[1]


def _remove(folder: str, address: str, descriptor: str) -> None:
    for remove, path in ((os.unlink, address), (os.rmdir, folder)):
        with contextlib.suppress(OSError):
            remove(path)
    os.close(int(descriptor))


@contextmanager
def _address_of_sockets(make: Callable[[], str]) -> Iterator[None]:
    """Have multiprocessing ask `make` for an address, in this thread and for the time of one start only."""
    thread, module = threading.get_ident(), cast(Any, connection)
    theirs = module.arbitrary_address

    def arbitrary_address(family: str) -> Any:
        return make() if threading.get_ident() == thread else theirs(family)

    module.arbitrary_address = arbitrary_address
    try:
        yield
    finally:
        module.arbitrary_address = theirs
