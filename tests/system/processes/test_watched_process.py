"""Programs that are not ours are watched and ended by the same code as children."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from parllel.system.processes.orphans import environment_mark
from parllel.system.processes.process_table import process_entry
from parllel.system.processes.several import ExitPoller, end_all
from parllel.system.processes.watched_process import WatchedProcess

Watch = Callable[..., WatchedProcess]
outputs: dict[int, Any] = {}  # of the programs, by their ids


class Program:
    """A subprocess.Popen with the face of a multiprocessing.Process."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.popen = popen
        self.pid = popen.pid
        self.kill = popen.kill

    @property
    def sentinel(self) -> int:
        raise AssertionError("this system has process descriptors")

    @property
    def exitcode(self) -> int | None:
        return self.popen.poll()

    def join(self, timeout: float | None = None) -> None:
        self.popen.wait(timeout)

    def close(self) -> None:
        if self.popen.stdout is not None:
            self.popen.stdout.close()


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Start a script of the shell, which may print the ids of what it starts; end it at last."""
    started: list[WatchedProcess] = []

    def start(script: str, kind: type[Program] = Program) -> WatchedProcess:
        # Of this process alone: another that runs these tests would end what has the same mark.
        mark = f"{os.getpid()}, {len(started)}"
        popen = subprocess.Popen(
            ["sh", "-c", script],
            env={**os.environ, **environment_mark(mark)},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        watched = WatchedProcess(kind(popen), name="a program", mark=mark)
        outputs[watched.pid] = popen.stdout
        started.append(watched)
        return watched

    yield start
    for watched in started:
        watched.kill()


def printed(watched: WatchedProcess) -> int:
    return int(outputs[watched.pid].readline())


def test_death_of_a_program_is_noticed_with_its_reason(watch: Watch) -> None:
    watched, other = watch("exec sleep 60"), watch("exit 7")
    until(other.died)
    assert other.exit_text() == "exited with code 7"
    assert watched.alive
    deaths = ExitPoller([watched])
    assert not deaths.any()
    os.kill(watched.pid, signal.SIGKILL)
    until(deaths.any)
    assert not watched.alive
    assert watched.exit_text() == "was killed by SIGKILL"
    watched.end()
    assert process_entry(watched.pid) is None


def test_program_that_leaves_within_its_grace_gets_no_signal(watch: Watch, tmp_path: Path) -> None:
    script = f"trap 'touch {tmp_path}/signal' TERM; echo 1; sleep 0.2; touch {tmp_path}/left"
    watched = watch(script)
    printed(watched)
    watched.end(grace_s=30.0)
    assert [path.name for path in tmp_path.iterdir()] == ["left"]


def test_program_may_tidy_up_on_sigterm_after_its_grace(watch: Watch, tmp_path: Path) -> None:
    script = f"trap 'touch {tmp_path}/tidied; exit' TERM; echo 1; while :; do sleep 0.01; done"
    tidies, has_no_time = watch(script), watch(script.replace("tidied", "killed"))
    for watched in (tidies, has_no_time):
        printed(watched)
    tidies.end(grace_s=0.05)
    has_no_time.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["tidied"]


def test_threads_read_the_exit_code_one_at_a_time(watch: Watch) -> None:
    """The fork server sends it once, and who comes second would find the end of the pipe."""
    reads = threading.Lock()
    texts: list[str] = []

    class Once(Program):
        @property
        def exitcode(self) -> int | None:
            assert reads.acquire(blocking=False), "two threads read it"
            time.sleep(0.05)
            reads.release()
            return super().exitcode

    watched = watch("exit 7", Once)
    until(watched.died)
    threads = [threading.Thread(target=lambda: texts.append(watched.exit_text())) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["exited with code 7"] * 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_does_not_wait_for_a_thread_that_it_lacks(watch: Watch) -> None:
    watched = watch("exit 7")
    until(watched.died)
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with watched._exit_lock:
            held.set()
            leave.wait(10.0)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10.0)
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        watched.exit_text()
        os._exit(0)
    leave.set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0


def test_several_programs_share_one_grace_and_all_may_tidy_up(watch: Watch, tmp_path: Path) -> None:
    trap = "trap 'touch {0}.tidied; exit' TERM; touch {0}; while :; do sleep 0.01; done"
    names = [tmp_path / str(i) for i in range(3)]
    programs = [watch(trap.format(name)) for name in names]
    until(lambda: all(name.exists() for name in names))
    end_all(programs, 0.05)
    assert not any(process_entry(program.pid) for program in programs)
    assert all(name.with_suffix(".tidied").exists() for name in names)
    end_all(programs, 0.05)
