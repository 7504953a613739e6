"""What children do in the tests: light on imports, as each spawned child imports this."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import struct
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from parllel.errors import add_note


def echo(connection: Connection) -> None:
    connection.send_bytes(b"ready")
    while True:
        try:
            message = connection.recv_bytes()
        except EOFError:
            return
        if message == b"leave":
            return
        connection.send_bytes(message)


def echo_inherited(connection: Connection, prefix: bytes, *, inherited: Any) -> None:
    connection.send_bytes(prefix + bytes(inherited))


def say(connection: Connection, *messages: bytes) -> None:
    for message in messages:
        connection.send_bytes(message)


class SeveralArgumentsError(Exception):
    """Cannot be rebuilt from what pickle keeps of it."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class KeepsArgumentsError(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(first, second)
        self.total = first + second


class HoldsFrameError(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = sys._getframe()


class UnspeakableError(HoldsFrameError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def fail_deep_inside(connection: Connection, error: BaseException) -> None:
    def innermost_frame() -> None:
        raise error

    innermost_frame()


def fail_with(connection: Connection, name: str) -> None:
    if name == "SeveralArgumentsError":
        raise SeveralArgumentsError(3, 4)
    if name == "HoldsFrameError":
        raise HoldsFrameError("a frame inside")
    if name == "UnspeakableError":
        raise UnspeakableError("")
    raise KeepsArgumentsError(3, 4)


def fail_with_class_of_folder(connection: Connection, folder: str) -> None:
    sys.path.insert(0, folder)
    import only_in_the_child  # type: ignore[import-not-found]

    raise only_in_the_child.ForeignError("from far away")


def fail_with_cause(connection: Connection) -> None:
    try:
        raise KeyError("the first trouble")
    except KeyError as error:
        raise ValueError("the second trouble") from error


def leave_by(connection: Connection, way: str) -> None:
    if way == "sys.exit":
        sys.exit(7)
    if way == "os._exit":
        os._exit(7)
    faulthandler.disable()  # a fork has that of pytest, which would report the death asked for
    if way == "SIGSEGV":
        # It also has that of a library that other tests have imported: pygame's aborts instead.
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), getattr(signal, way))
    time.sleep(60)


def close_pipe_and_stay(connection: Connection) -> None:
    connection.close()
    time.sleep(60)


def be_busy(connection: Connection) -> None:
    connection.send_bytes(b"ready")
    time.sleep(60)


def interrupt_parent(connection: Connection) -> None:
    connection.send_bytes(b"ready")
    connection.recv_bytes()
    time.sleep(0.1)
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)


def ignore_sigterm(connection: Connection) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    be_busy(connection)


def fork_sleeper() -> int:
    """Start a process that holds all our descriptors."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return pid


def fork_and_serve(connection: Connection) -> None:
    connection.send_bytes(str(fork_sleeper()).encode())
    connection.recv_bytes()


def reply_fork_and_die(connection: Connection) -> None:
    fork_sleeper()
    connection.send_bytes(b"the last words")
    os.kill(os.getpid(), signal.SIGKILL)


def send_half_a_message(connection: Connection, keep_pipe: bool, then: str) -> None:
    if keep_pipe:
        fork_sleeper()
    os.write(connection.fileno(), struct.pack("!i", 1_000_000) + b"x" * 1000)
    if then == "sleep":
        time.sleep(60)
    os.kill(os.getpid(), signal.SIGKILL)


def start_programs(connection: Connection, count: int) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    started = [subprocess.Popen(sleep) for _ in range(count)]
    connection.send_bytes(",".join(str(process.pid) for process in started).encode())
    connection.recv_bytes()
    for process in started:
        process.wait()


def tell_environment(connection: Connection) -> None:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PARLLEL_TEST")
    told = [os.environ.get(name, "") for name in names]
    connection.send_bytes(",".join(told).encode())


def tell_collector(connection: Connection) -> None:
    """Send whether the garbage collector is on, and how many objects it never looks at."""
    connection.send_bytes(b"%d %d" % (gc.isenabled(), gc.get_freeze_count()))


def meet_sibling(connection: Connection, *, inherited: Connection) -> None:
    """Tell the sibling that we are here, and wait for it to say the same."""
    inherited.send_bytes(b"here")
    connection.send_bytes(inherited.recv_bytes())


def tell_parent(connection: Connection) -> None:
    connection.send_bytes(str(os.getppid()).encode())


def start_echo_below(connection: Connection, method: str) -> None:
    from parllel.system.processes.child import Child

    child = Child(echo, start_method=method)
    child.receive(30, "at start")
    child.send_bytes(b"hello from below")
    connection.send_bytes(child.receive(30, "echoing"))
    child.send_bytes(b"leave")
    child.end()


def fail_to_load() -> None:
    raise LookupError("nobody knows me here")


def tell_signal_rules(connection: Connection) -> None:
    rules = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
    leads = os.getpgrp() == os.getpid()
    connection.send_bytes(f"{rules[0]!r} {rules[1]!r} {leads}".encode())


class HoldsMuchError(Exception):
    """Keeps a large thing beside a small one."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code, self.much = 7, bytes(10**6)


def recurse(connection: Connection) -> None:
    """Recurse through lines that differ, which a traceback does not fold."""
    names = [f"step_{i}_of_a_function_that_has_a_rather_long_name" for i in range(60)]
    lines = [f"def {n}(): {m}()" for n, m in zip(names, [*names[1:], names[0]], strict=True)]
    exec(compile("\n".join([*lines, f"{names[0]}()"]), "deep.py", "exec"), {})


def fail_with_megabytes(connection: Connection, kind: str) -> None:
    text = "begin" + "x" * 10**7 + "end"
    if kind == "text":
        raise ValueError(text)
    if kind == "text among others":
        raise OSError(2, text, "model.xml")
    if kind == "array":
        raise KeyError("the array", np.zeros(10**6))
    if kind == "attribute":
        raise HoldsMuchError("small")
    if kind == "note":
        error = LookupError("noted")
        add_note(error, text)
        raise error
    try:
        raise KeyError(text)
    except KeyError as error:
        raise ValueError("follows") from error


def start_sessions(connection: Connection, count: int) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    started = [subprocess.Popen(sleep, start_new_session=True) for _ in range(count)]
    connection.send_bytes(",".join(str(process.pid) for process in started).encode())
    connection.recv_bytes()
