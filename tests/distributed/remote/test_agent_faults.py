"""Whatever the code of an agent does costs that agent its action, and nothing else."""

from __future__ import annotations

import os
import time

import pytest
from agent_setup import context, file_agent
from other_starts import other_starts
from waiting import until

from parllel.distributed.remote import AgentFailure
from parllel.system.processes.process_table import command_of, descendants, process_runs

GOOD = {"step": 1, "remainingOverageTime": 0}

# One agent does what the observation names: after each fault the next act has a working process again.
AGENT = """
import ctypes, os, subprocess, sys, threading, time

counts = {"acts": 0}

def find_pipe():
    import stat
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                yield fd
        except OSError:
            pass

def raise_error(error):
    raise error

class Odd(BaseException):
    def __str__(self):
        raise RuntimeError("no text")

def recursive():
    made = []
    made.append(made)
    return made

def deep():
    return deep() + 1

def forked():
    if os.fork() == 0:
        return "child"
    return "parent"

def flood(n):
    for _ in range(n // 2**16):
        os.write(1, b"x" * 2**16)
    print("y" * n)
    return 7

def write_pipe(data):
    for fd in find_pipe():
        os.write(fd, data)
    time.sleep(60)

def close_all():
    os.closerange(3, 256)
    return 1

def start_others():
    threading.Thread(target=time.sleep, args=(1000,), daemon=False).start()
    started = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return started.pid

DO = {
    "nothing": lambda: 5,
    "raise": lambda: raise_error(ValueError("a reason")),
    "exit": lambda: sys.exit(3),
    "interrupt": lambda: raise_error(KeyboardInterrupt()),
    "odd": lambda: raise_error(Odd()),
    "long text": lambda: raise_error(ValueError("x" * 10**7)),
    "recursion": deep,
    "set": lambda: {1, 2},
    "recursive": recursive,
    "nan": lambda: float("nan"),
    "object": lambda: [1, {"a": object()}],
    "huge": lambda: "x" * (17 << 20),
    "many": lambda: [0] * 2_000_000,
    "os._exit": lambda: os._exit(4),
    "segfault": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), 9),
    "stop": lambda: os.kill(os.getpid(), 19),
    "loop": lambda: [None for _ in iter(int, 1)],
    "c": lambda: ctypes.PyDLL(None).sleep(1000),  # with the interpreter lock
    "fork": forked,
    "flood": lambda: flood(100 << 20),
    "close stdout": lambda: (sys.stdout.close(), os.close(1), 6)[2],
    "close all": close_all,
    "garbage": lambda: write_pipe(b"garbage" * 10),
    "giant": lambda: write_pipe(b"\\x7f\\xff\\xff\\xff" + b"x" * 10**5),
    "forged": lambda: write_pipe(b"\\x00\\x00\\x00\\x06\\xff\\x80\\x04K\\x01."),
    "start others": start_others,
}

def agent(observation):
    counts["acts"] += 1
    what = observation.get("do")
    return DO[what]() if what else counts["acts"]
"""


@pytest.fixture
def environment():
    return context(maxLogLength=100)


@pytest.fixture
def agent(tmp_path, environment):
    with file_agent(tmp_path, AGENT, environment=environment) as made:
        yield made


def do(agent, what, **more):
    return agent.act({**GOOD, "do": what, **more})


@pytest.mark.parametrize(
    ("what", "status", "reason"),
    [
        ("raise", "ERROR", "ValueError: a reason"),
        ("exit", "ERROR", "SystemExit: 3"),
        ("interrupt", "ERROR", "KeyboardInterrupt"),
        ("odd", "ERROR", "Odd"),
        ("long text", "ERROR", "ValueError: xxxx"),
        ("recursion", "ERROR", "RecursionError: maximum recursion depth"),
        (
            "set",
            "INVALID",
            "returned an invalid action: expected JSON values or arrays, got builtins.set",
        ),
        ("recursive", "INVALID", "nested more than 64 levels deep; perhaps one contains itself"),
        ("nan", "INVALID", "expected a finite number, got nan"),
        ("object", "INVALID", "[1].a: expected JSON values or arrays, got builtins.object"),
        ("huge", "INVALID", "returned more than 16777216 bytes"),
        ("many", "INVALID", "expected at most 1000000 values"),
    ],
)
def test_the_process_goes_on_after(agent, what, status, reason):
    failure, _ = do(agent, what)
    assert isinstance(failure, AgentFailure)
    assert failure.status == status
    assert reason in failure.reason
    # The same process: it has counted.
    assert agent.act(GOOD)[0] == 2


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("os._exit", "its process exited with code 4"),
        ("segfault", "its process was killed by SIGSEGV"),
        ("kill", "its process was killed by SIGKILL"),
        ("close all", "its process "),
        ("garbage", "its process sent an invalid answer"),
        ("giant", "its process sent an invalid answer: a message of 2147483647 bytes"),
        ("forged", "its process sent an invalid answer"),
    ],
)
def test_a_new_process_acts_after(agent, what, reason):
    assert agent.act(GOOD)[0] == 1
    failure, _ = do(agent, what)
    assert (failure.status, reason in failure.reason) == ("ERROR", True), failure
    assert agent.act(GOOD)[0] == 1


@pytest.mark.parametrize("what", ["loop", "c", "stop"])
def test_one_that_does_not_return_is_ended_at_its_deadline(agent, environment, what):
    assert agent.act(GOOD)[0] == 1
    environment.configuration["actTimeout"] = 0.3
    failure, log = do(agent, what, remainingOverageTime=0.2)
    assert failure == AgentFailure("TIMEOUT", "no action within 0.5 s; its process was ended")
    assert log["duration"] >= 0.5
    environment.configuration["actTimeout"] = 30
    assert agent.act(GOOD)[0] == 1


def test_a_fork_that_returns_does_not_speak_for_its_parent(agent):
    assert do(agent, "fork")[0] == "parent"
    assert agent.act(GOOD)[0] == 2


def test_a_flood_of_output_is_bounded_and_no_error(agent):
    action, log = do(agent, "flood")
    assert action == 7
    assert log["stdout"] == "y" * 100
    action, log = do(agent, "close stdout")
    assert action == 6
    assert do(agent, "nothing") == (
        5,
        {"duration": pytest.approx(0, abs=60), "stdout": "", "stderr": ""},
    )


def test_agents_start_beside_each_other(tmp_path):
    with other_starts():
        for _ in range(10):
            agent = file_agent(tmp_path, "def agent(observation):\n    return 3")
            assert agent.act(GOOD)[0] == 3
            agent.close()


def test_what_it_has_started_ends_with_it(agent):
    assert isinstance(do(agent, "start others")[0], int)

    def sleeping():
        # What it calls its number may be that of a namespace.
        below = [entry.pid for entry in descendants(os.getpid())]
        return [pid for pid in below if command_of(pid) == "sleep 1000"]

    # One look may miss it: the kernel's lists of children are exact only while these are stopped, and for a
    # moment it knows no command of what has just been started.
    until(lambda: len(sleeping()) == 1)
    (started,) = sleeping()
    agent.close()
    # It was killed; on a busy machine it takes a moment to be gone.
    until(lambda: not process_runs(started))
    agent.close()


def test_memory_is_limited(tmp_path):
    source = """
        kept = []
        def agent(observation):
            if observation.do == "one":
                return len(bytearray(1 << 33))
            while observation.do == "many":
                kept.append(bytearray(1 << 20))
            kept.clear()
            return "free"
    """
    with file_agent(tmp_path, source, memory_limit_bytes=1 << 30) as agent:
        for what in ("one", "many"):
            failure, _ = do(agent, what)
            assert failure.status == "ERROR"
            assert failure.reason.startswith("MemoryError")
        assert do(agent, "nothing")[0] == "free"


def test_closing_ends_an_act_that_another_thread_waits_for(agent):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        acting = pool.submit(do, agent, "loop")
        pid = agent._process._child.pid
        while not agent._lock.locked():
            time.sleep(0.001)
        time.sleep(0.05)
        agent.close()
        failure, _ = acting.result(30)
    assert failure == AgentFailure("ERROR", "its process was killed by SIGKILL")
    until(lambda: not process_runs(pid))


def test_no_secret_of_the_environment_reaches_an_agent(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVER_TOKEN", "secret")
    source = """
        import os
        def agent():
            return ["SERVER_TOKEN" in os.environ, "PATH" in os.environ]
    """
    with file_agent(tmp_path, source) as agent:
        assert agent.act(GOOD)[0] == [False, True]
    assert os.environ["SERVER_TOKEN"] == "secret"
