"""A handle and its worker under random schedules, beside a model of what the worker was told to do.

Each command carries a text of its own that its replies repeat, so that a reply to another one is noticed.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from launching import HOSTILE, LONG_S

from parllel.distributed.operators import OperatorConfig, OperatorLauncher
from parllel.distributed.operators.operator_process_handle import OperatorProcessHandle
from parllel.errors import BadReplyError, ClosedError, WorkerDiedError
from parllel.system.processes.process_table import process_entry

# What a worker does on a command, and what of it the caller of that command should see.
BEHAVIOURS: dict[str, tuple[list[Any], list[str]]] = {
    "quick": (["reply"], ["step"]),
    "slow": ([["sleep", 0.02], "reply"], ["step"]),
    "last": (["end"], ["step", "episode_end"]),
    "twice": (["reply", "again"], ["step"]),
    "garbage": ([["say", "loading"], "reply"], ["step"]),
    "wrong": ([["tell", {"type": "step", "reward": "much"}]], []),
    "noisy": ([["errors", 2000], "reply"], ["step"]),
    "forks": (["fork", "reply"], ["step"]),
    "dies": ([["exit", 3]], []),
    "dies after": (["reply", ["sleep", 0.01], "kill"], ["step"]),
    "half a line": ([["raw", '{"type": "st'], "kill"], []),
    # Of a worker that repeats no ids these cannot be told from replies.
    "silent": ([], []),
    "unasked": (["reply", ["say", '{"type": "ready", "seed": 0}']], ["step"]),
}
NEEDS_IDS = ("silent", "unasked")
DEADLY = ("dies", "dies after", "half a line")
TIMEOUTS = st.sampled_from([0.0, 0.001, 0.02])


class HandleMachine(RuleBasedStateMachine):
    """Commands, reads, delays and deaths in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.launcher = OperatorLauncher(self.folder.name)
        self.pids: list[int] = []
        self.n_launched = self.n_sent = 0

    @initialize(has_ids=st.booleans())
    def launch(self, has_ids: bool) -> None:
        self.has_ids = has_ids
        words = [] if has_ids else ["--no-ids"]
        config = OperatorConfig("program", "one", worker=[*HOSTILE, *words])
        self.n_launched += 1
        self.handle = self.launcher.launch_operator(
            config, f"run_{self.n_launched}", interactive=True
        )
        self.pids.append(self.handle.pid)
        self.expected: list[tuple[str, str]] = []
        self.is_doomed = self.is_dead = self.is_stopped = False
        self.n_garbage = 0

    # ------------------------------------------------------------------ commands

    @rule(behaviour=st.sampled_from(sorted(BEHAVIOURS)))
    def step(self, behaviour: str) -> None:
        if behaviour in NEEDS_IDS and not self.has_ids:
            behaviour = "quick"
        orders, seen = BEHAVIOURS[behaviour]
        text = self.next_text()
        if self.send(lambda: self.handle.send_step(action=[["as", text], *orders])):
            self.expect([(kind, text) for kind in seen])
            self.n_garbage += behaviour in ("garbage", "wrong")
            self.is_doomed |= behaviour in DEADLY

    @rule(is_slow=st.booleans())
    def select(self, is_slow: bool) -> None:
        text = self.next_text()
        observation = [["as", text], ["sleep", 0.02 * is_slow]]
        if self.send(lambda: self.handle.send_select_action("a", observation)):
            self.expect([("action_selected", text)])

    @rule()
    def reset(self) -> None:
        text = self.next_text()
        if self.send(lambda: self.handle.send_reset(int(text))):
            self.expect([("ready", text)])

    @rule()
    def ping(self) -> None:
        if self.send(self.handle.send_ping):
            self.expect([("pong", "")])

    @rule()
    def stop(self) -> None:
        if self.send(self.handle.send_stop):
            self.expect([("stopped", "")])
            self.is_stopped = True

    def next_text(self) -> str:
        self.n_sent += 1
        return str(self.n_sent)

    def send(self, command: Any) -> bool:
        # Here, as a precondition must not depend on how fast a worker is.
        if self.is_stopped:
            return False
        try:
            command()
        except WorkerDiedError:
            assert self.is_doomed
            self.is_dead = True
            return False
        # A dead worker's input may be held open by what it started: then the read that follows says so.
        return True

    def expect(self, replies: list[tuple[str, str]]) -> None:
        # A worker that will have died by then answers nothing more.
        self.expected = [] if self.is_doomed else replies

    # ------------------------------------------------------------------ reads

    @rule(timeout=TIMEOUTS)
    def read(self, timeout: float) -> None:
        began = time.monotonic()
        self.read_one(timeout)
        assert time.monotonic() - began < timeout + 5.0

    @rule()
    def read_all(self) -> None:
        while self.expected and not self.is_dead:
            assert self.read_one(LONG_S), "no reply in time"

    @rule()
    def read_until_death(self) -> None:
        while self.is_doomed and not (self.is_dead or self.handle.process.ended):
            assert self.read_one(LONG_S), "no death in time"

    def read_one(self, timeout: float) -> bool:
        """Read once; return whether anything came."""
        try:
            reply = self.handle.try_read_response(timeout)
        except BadReplyError:
            assert self.n_garbage > 0
            self.n_garbage -= 1
            return True
        except WorkerDiedError:
            assert self.is_doomed
            self.is_dead = True
            return True
        except ClosedError:
            assert self.is_stopped
            assert not self.expected
            return True
        if reply is None:
            return False
        kind, text = self.expected.pop(0)
        assert reply["type"] == kind
        assert text in ("", str(reply.get("raw", reply.get("seed", text))))
        return True

    # ------------------------------------------------------------------ accidents

    @rule()
    def wait(self) -> None:
        time.sleep(0.01)

    @rule()
    def kill(self) -> None:
        if self.handle.is_running:
            os.kill(self.handle.pid, signal.SIGKILL)
        self.is_doomed = True

    @rule()
    def launch_another(self) -> None:
        # One that died by itself is ended by the launcher.
        if self.is_doomed and not self.is_stopped:
            self.handle.wait(LONG_S)
        else:
            self.handle.end(0.05)
        self.launch(self.has_ids)

    def teardown(self) -> None:
        self.launcher.close()
        for pid in self.pids:
            assert process_entry(pid) is None
        self.folder.cleanup()


def check(n_examples: int) -> None:
    with OperatorLauncher() as launcher:  # starts the fork server, which stays
        launcher_config = OperatorConfig("program", "first", worker=["true"])
        with tempfile.TemporaryDirectory() as folder:
            launcher.log_dir = launcher.log_dir.__class__(folder)
            handle: OperatorProcessHandle = launcher.launch_operator(launcher_config, "run")
            handle.end()
    before = held()
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        HandleMachine,
        settings=settings(
            max_examples=n_examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert held() == before


def held() -> tuple[int, int]:
    """Return how many descriptors and threads this process has."""
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def test_each_command_gets_its_own_reply_a_timeout_or_a_death() -> None:
    check(15)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_same_for_many_schedules() -> None:
    check(600)
