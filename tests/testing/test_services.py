from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from parllel.system.processes.process_table import descendants, process_runs
from parllel.testing import LeakError, LeakGuard, Service, subreaper
from parllel.testing import services as registry

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")

GRACE_S = 0.05
SERVER = [sys.executable, str(Path(__file__).parent / "forking_server.py")]
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


class ForkingServer:
    """A server in a process of its own, which is adopted by a service."""

    def __init__(self, service: Service, *, marked: bool = True) -> None:
        environment = {**os.environ, **(service.environment if marked else {})}
        self.process = subprocess.Popen(SERVER, stdout=subprocess.PIPE, env=environment)
        service.adopt(self.process.pid)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def ask(self, path: str) -> int:
        """Return the id of the worker that answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path)
            return int(connection.getresponse().read())
        finally:
            connection.close()

    def stop(self, *, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@contextmanager
def blamed(who: str) -> Iterator[list[str]]:
    """Expect a report of leaks by a service, or by the test (""), and give it."""
    report: list[str] = []
    with pytest.raises(LeakError, match=rf"^{f'{who} ' if who else ''}left behind:\n") as caught:
        yield report
    report.append(str(caught.value))


def pids_of(report: list[str]) -> list[int]:
    return [int(pid) for pid in re.findall(r"process (\d+)", report[0])]


def ours() -> set[int]:
    return {entry.pid for entry in descendants(os.getpid())}


@pytest.fixture(autouse=True)
def no_service_stays() -> Iterator[None]:
    others = list(registry._live)  # of the session
    yield
    assert registry._live == others


def test_workers_that_appear_during_a_test_are_neither_blamed_nor_killed() -> None:
    with Service("forking") as service:
        server = ForkingServer(service, marked=False)
        workers = []
        for _ in range(2):
            with LeakGuard(grace_s=0.0):
                server.ask("/quick")
                workers.append(server.ask("/stay"))
        assert all(map(process_runs, workers))
        for worker in workers:
            os.kill(worker, 9)
        server.stop()
    assert not ours() & set(workers)


def test_what_a_service_leaves_is_blamed_on_it_once_and_killed() -> None:
    with blamed("service 'forking'") as report, Service("forking", grace_s=GRACE_S) as service:
        server = ForkingServer(service)
        with LeakGuard(grace_s=0.0):
            worker = server.ask("/stay")
        server.stop()
    assert pids_of(report) == [worker]
    assert "forking_server.py" in report[0]
    assert worker not in ours()
    with LeakGuard(grace_s=0.0):
        pass


def test_a_server_that_was_never_stopped_is_killed_with_all_its_workers() -> None:
    with blamed("service 'forking'") as report, Service("forking", grace_s=GRACE_S) as service:
        server = ForkingServer(service)
        worker = server.ask("/stay")
    assert set(pids_of(report)) == {server.process.pid, worker}
    assert not ours() & {server.process.pid, worker}
    server.stop()


def test_the_test_is_still_blamed_for_what_is_its_own() -> None:
    with Service("forking", threads="forking-*", descriptors="socket:*") as service:
        server = ForkingServer(service)
        leave = threading.Event()
        thread = threading.Thread(target=leave.wait, name="of the test")
        with blamed("") as report, LeakGuard(grace_s=0.2):
            worker = server.ask("/stay")
            process = subprocess.Popen(SLEEP)
            thread.start()
            pipe = os.pipe()
        assert pids_of(report) == [process.pid]
        assert "thread 'of the test'" in report[0]
        assert "file descriptor to pipe:" in report[0]
        assert process_runs(worker)
        leave.set()
        thread.join()
        process.wait()
        for end in pipe:
            os.close(end)
        os.kill(worker, 9)
        server.stop()


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "seen"])
def test_a_service_that_crashes_keeps_its_orphans(marked: bool) -> None:
    with blamed("service 'forking'") as report, Service("forking", grace_s=GRACE_S) as service:
        server = ForkingServer(service, marked=marked)
        if not marked:  # the guard's first look is the only one before it is orphaned
            worker = server.ask("/stay")
        with LeakGuard(grace_s=0.0):
            if marked:  # nothing looks between its start and its parent's death
                worker = server.ask("/stay")
            server.stop(kill=True)
            parents = {entry.pid: entry.parent for entry in descendants(os.getpid())}
            assert parents[worker] == os.getpid()
        assert process_runs(worker)
    assert pids_of(report) == [worker]
    assert worker not in ours()  # killed and collected


FORKS_ON = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        time.sleep(0.02)
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
    time.sleep(0.01)
"""


def test_a_service_that_forks_on_is_killed_with_all_that_it_started() -> None:
    with blamed("service 'rabbits'"), Service("rabbits", grace_s=0.3) as service:
        process = subprocess.Popen(
            [sys.executable, "-c", FORKS_ON], env={**os.environ, **service.environment}
        )
        service.adopt(process.pid)
    assert not any(service._is_marked(pid) for pid in ours())
    process.wait()


class Holding(BaseHTTPRequestHandler):
    """Answer, and keep thread and connection until the server is told to leave."""

    leave = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"here")
        self.wfile.flush()
        self.leave.wait(20)

    def log_message(self, *arguments: object) -> None:
        pass


def test_threads_and_connections_of_a_server_in_this_process() -> None:
    Holding.leave.clear()
    with Service("web", threads="socketserver.*", descriptors="socket:*") as service:
        with LeakGuard(grace_s=0.0):  # it starts within a test
            server = ThreadingHTTPServer(("127.0.0.1", 0), Holding)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
        threads = set(threading.enumerate())
        with LeakGuard(grace_s=0.0):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
            connection.request("GET", "/")
            with connection.getresponse() as response:
                assert response.read(4) == b"here"
            connection.close()
            (request,) = set(threading.enumerate()) - threads
            assert "process_request_thread" in request.name
        assert service.claim(registry.Holdings.now()).descriptors
        Holding.leave.set()
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_service_that_leaves_threads_and_descriptors_is_blamed_at_its_end(tmp_path: Path) -> None:
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait, name="client-7", daemon=True)
    path = tmp_path / "journal"
    with (
        blamed("service 'broker'") as report,
        Service("broker", threads="client-*", descriptors=f"{tmp_path}/*", grace_s=GRACE_S),
        LeakGuard(grace_s=0.0),
    ):
        thread.start()
        descriptor = os.open(path, os.O_CREAT)
    assert report[0].splitlines()[1:] == [
        "  daemon thread 'client-7'",
        f"  file descriptor to {path}",
    ]
    leave.set()
    thread.join()
    os.close(descriptor)


def test_descriptors_that_a_service_keeps_are_not_reported(tmp_path: Path) -> None:
    with (
        Service("library", keeps=f"{tmp_path}/*", grace_s=GRACE_S),
        LeakGuard(grace_s=0.0),
    ):
        descriptor = os.open(tmp_path / "journal", os.O_CREAT)
    os.close(descriptor)


# The guards of tests beside it would take the segments for theirs.
@pytest.mark.alone
def test_segments_of_a_service() -> None:
    script = (
        "import mmap, os, sys\n"
        "with open('/dev/shm/' + sys.argv[1], 'wb+') as file:\n"
        "    file.truncate(10)\n"
        "    shown = mmap.mmap(file.fileno(), 10)\n"
        "print('mapped', flush=True)\n"
        "sys.stdin.read()\n"
    )
    names = [f"parllel-{kind}-{os.getpid()}" for kind in ("mapped", "declared")]
    with (
        blamed("service 'store'") as report,
        Service("store", segments="parllel-declared-*", grace_s=GRACE_S) as service,
    ):
        with LeakGuard(grace_s=0.0):
            process = subprocess.Popen(
                [sys.executable, "-c", script, names[0]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            service.adopt(process.pid)
            assert process.stdout is not None
            assert process.stdout.readline() == b"mapped\n"
            service.adopt_new()  # its pipes
            Path("/dev/shm", names[1]).touch()
        assert all(Path("/dev/shm", name).exists() for name in names)
        process.communicate()
    lines = [f"  segment /dev/shm/{name}" for name in sorted(names)]
    assert report[0].splitlines()[1:] == lines
    assert not any(Path("/dev/shm", name).exists() for name in names)


@pytest.mark.parametrize("first", [0, 1])
def test_two_services_at_once_answer_for_themselves(first: int) -> None:
    services = [Service(name, descriptors="socket:*", grace_s=GRACE_S) for name in ("one", "two")]
    for service in services:
        service.__enter__()
    servers = [ForkingServer(service) for service in services]
    with LeakGuard(grace_s=0.0):
        workers = [server.ask("/stay") for server in servers]
        client = socket.socket()  # may belong to either
    for i in (first, 1 - first):
        servers[i].stop()
        with blamed(f"service '{services[i].name}'") as report:
            services[i].__exit__(None, None, None)
        assert pids_of(report) == [workers[i]]
        assert ("file descriptor to socket:" in report[0]) == (i != first)
        assert process_runs(workers[1 - first]) == (i == first)
    client.close()


def test_orphans_are_adopted_until_the_last_guard_or_service_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subreaper, "_askers", 0)  # as without the guard around this test
    adopting = subreaper.set_adopting(False)
    service = Service("longer")
    with LeakGuard():
        service.__enter__()
    assert subreaper.set_adopting(True)
    service.__exit__(None, None, None)
    assert not subreaper.set_adopting(adopting)


def test_what_a_library_started_unnamed_can_be_taken_whole() -> None:
    leave = threading.Event()
    with Service("library", grace_s=GRACE_S) as service:
        with LeakGuard(grace_s=0.0):
            thread = threading.Thread(target=leave.wait)
            thread.start()
            process = subprocess.Popen(SLEEP, stdout=subprocess.PIPE)
            service.adopt_new()
        with blamed(""), LeakGuard(grace_s=0.0):
            pipe = os.pipe()  # what comes later is not the library's
        assert process_runs(process.pid)
        for end in pipe:
            os.close(end)
        leave.set()
        thread.join()
        process.kill()
        process.communicate()


def test_the_exit_status_of_an_adopted_process_is_kept_for_its_starter() -> None:
    with Service("short") as service:
        with LeakGuard():
            process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
            service.adopt(process.pid)
            wait_until(lambda: not process_runs(process.pid))
        assert process.wait() == 7
        with pytest.raises(
            ProcessLookupError, match=rf"service 'short': .* no process {process.pid}"
        ):
            service.adopt(process.pid)


def test_an_error_of_the_body_comes_first() -> None:
    servers = []

    def fail() -> None:
        with Service("forking", grace_s=GRACE_S) as service:
            servers.append(ForkingServer(service))
            raise KeyError("body")

    with pytest.raises(KeyError, match="body"):
        fail()
    assert not process_runs(servers[0].process.pid)
    servers[0].stop()


SUITE = """
import os, subprocess, sys, pytest
from parllel.testing import Service

@pytest.fixture(scope="session")
def server():
    with Service("server", grace_s=0.05) as service:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        service.adopt(process.pid)
        yield process.pid

def test_first(request):
    request.getfixturevalue("server")  # within the guard of this test

def test_second(server):
    os.kill(server, 0)

def test_last():
    pass
"""


def test_a_suite_blames_no_test_for_its_service(tmp_path: Path) -> None:
    conftest = Path(__file__).parents[1] / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text())
    (tmp_path / "test_suite.py").write_text(SUITE)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-W", "ignore", tmp_path],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=50,
    )
    outcomes = sorted(
        line.split(" - ")[0]
        for line in run.stdout.splitlines()
        if line.startswith(("PASSED", "ERROR", "FAILED"))
    )
    passed = [f"PASSED test_suite.py::test_{name}" for name in ("first", "last", "second")]
    # The end of a session is reported with its last test.
    assert outcomes == ["ERROR test_suite.py::test_last", *passed], run.stdout + run.stderr
    assert run.stdout.count("LeakError: service 'server' left behind") >= 1
