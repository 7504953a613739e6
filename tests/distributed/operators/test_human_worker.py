"""A person decides at a terminal, which is left as it was found."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time

import pytest
from gymnasium import spaces
from launching import LONG_S

from parllel.distributed.operators import OperatorConfig, OperatorLauncher
from parllel.distributed.operators.workers.human_agent import HumanAgent
from parllel.distributed.operators.workers.human_worker import load
from parllel.distributed.operators.workers.terminal import Terminal, TerminalError
from parllel.distributed.operators.workers.worker_main import worker_parser

LAKE = ("--env-id", "FrozenLake-v1", "--env-kwargs", '{"is_slippery": false}')


class Person:
    """The other side of a pseudo-terminal."""

    def __init__(self):
        self.ours, self.theirs = pty.openpty()
        self.path = os.ttyname(self.theirs)
        self.settings = termios.tcgetattr(self.theirs)
        self.seen = ""

    def sees(self, pattern):
        """Wait until the terminal shows a pattern after what was seen before; return the match."""
        deadline = time.monotonic() + LONG_S
        while True:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end() :]
                return found
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} is not in {self.seen!r}"
            if select.select([self.ours], [], [], left)[0]:
                self.seen += os.read(self.ours, 4096).decode()

    def types(self, text):
        """Type when keys are read one by one: what was typed before is dropped."""
        deadline = time.monotonic() + LONG_S
        while termios.tcgetattr(self.theirs)[3] & termios.ICANON:
            assert time.monotonic() < deadline, "no key is read"
            time.sleep(0.01)
        os.write(self.ours, text.encode())

    def enters(self, line):
        os.write(self.ours, line.encode() + b"\n")

    def is_as_before(self):
        return termios.tcgetattr(self.theirs) == self.settings

    def close(self):
        for fd in (self.ours, self.theirs):
            with contextlib.suppress(OSError):
                os.close(fd)


@pytest.fixture
def person():
    with contextlib.closing(Person()) as person:
        yield person


@pytest.fixture
def worker():
    """A function that starts a worker and returns it."""
    started = []

    def start(*words, **options):
        command = [
            sys.executable,
            "-m",
            "parllel.distributed.operators.workers.human_worker",
            *words,
        ]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, text=True, bufsize=1, **{**pipes, **options}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def send(worker, cmd, **fields):
    worker.stdin.write(json.dumps({"cmd": cmd, **fields}) + "\n")
    worker.stdin.flush()


def reply(worker):
    return json.loads(worker.stdout.readline())


def begun(worker, person, *words):
    process = worker(*words, "--interactive", "--tty", person.path, start_new_session=True)
    send(process, "reset", seed=0)
    assert reply(process)["type"] == "ready"
    return process


def test_a_person_plays_by_keys(worker, person):
    process = begun(worker, person, *LAKE)
    send(process, "step")
    person.sees("FFFH")  # the lake as text
    person.sees(r"\[0\] action 0  \[1\] action 1  \[2\] action 2  \[3\] action 3")
    person.types("9")
    person.sees("'9' is not an action")
    person.types("2")
    step = reply(process)
    assert (step["action"], step["raw"]) == (2, "2")
    assert person.is_as_before()
    # Chosen elsewhere, as by a button of a page: no key is awaited.
    send(process, "step", action=0)
    step = reply(process)
    assert (step["action"], step["step_index"]) == (0, 2)
    assert "raw" not in step
    send(process, "stop")
    assert reply(process) == {"type": "stopped"}
    assert process.wait(LONG_S) == 0


def test_keys_can_be_chosen(worker, person):
    keys = {"left": 0, "down": 1, "right": 2, "w": 3}
    process = begun(worker, person, *LAKE, "--settings", json.dumps({"keys": keys}))
    for typed, name in (("\x1b[C", "right"), ("w", "w"), ("\x1bOB", "down")):
        send(process, "step")
        person.sees(r"\[left\] action 0  \[down\]")
        person.types(typed)
        step = reply(process)
        assert (step["raw"], step["action"]) == (name, keys[name])


def test_other_actions_are_typed_as_json(worker, person):
    process = begun(worker, person, "--env-id", "Pendulum-v1")
    send(process, "step")
    person.sees("an action of Box.*, as JSON:")
    person.enters("left")
    person.sees("as JSON:")
    person.enters("[0.5]")
    step = reply(process)
    assert (step["action"], step["raw"], step["parsed"]) == ([0.5], "[0.5]", [0.5])


def test_an_environment_of_a_file_is_shown_as_it_draws_itself(worker, person, tmp_path):
    file = tmp_path / "lakes.py"
    made = 'gymnasium.make("FrozenLake-v1", render_mode="ansi")'
    file.write_text(f"import gymnasium\ndef lake():\n    return {made}\n")
    process = begun(worker, person, "--env-id", f"{file}:lake")
    send(process, "step")
    person.sees("FFFH")
    person.types("0")
    assert reply(process)["action"] == 0


def test_without_a_terminal_a_step_says_so(worker):
    process = worker(*LAKE, "--interactive", start_new_session=True)
    send(process, "reset", seed=0)
    assert reply(process)["type"] == "ready"
    send(process, "step")
    said = reply(process)
    assert said["type"] == "error"
    assert (
        "/dev/tty: expected a terminal to read keys from: No such device or address"
        in said["message"]
    )
    send(process, "step", action=2)
    assert reply(process)["step_index"] == 1


def test_a_worker_without_a_terminal_draws_and_takes_its_actions_with_the_steps(worker, person):
    words = (*LAKE, "--interactive", "--no-terminal")
    process = worker(*words, preexec_fn=in_a_terminal(person.path))
    send(process, "reset", seed=0, frame="png")
    assert reply(process)["render_payload"]["mode"] == "png"
    send(process, "step", action=2)
    assert reply(process)["action"] == 2
    send(process, "step", action=4)
    assert "action: expected from 0 to 3, got 4" in reply(process)["message"]
    send(process, "step")
    message = reply(process)["message"]
    assert message.endswith("this worker has no terminal; send an action with each step")


def test_ctrl_d_and_a_closed_terminal_are_errors_of_the_step(worker, person):
    process = begun(worker, person, *LAKE)
    send(process, "step")
    person.types("\x04")
    assert "the user ended the input with Ctrl-D" in reply(process)["message"]
    assert person.is_as_before()
    send(process, "step")
    person.sees("action 3")
    person.sees("action 3")
    person.close()
    assert reply(process)["type"] == "error"
    send(process, "step", action=2)
    assert reply(process)["step_index"] == 1


@pytest.mark.parametrize("how", ["SIGTERM", "the driver leaves"])
def test_the_terminal_is_restored_when_the_worker_ends_meanwhile(worker, person, how):
    process = begun(worker, person, *LAKE)
    send(process, "step")
    person.sees("action 3")
    while person.is_as_before():
        time.sleep(0.01)
    if how == "SIGTERM":
        process.send_signal(signal.SIGTERM)
    else:
        process.stdin.close()
        process.stdin = None
    expected = 128 + signal.SIGTERM if how == "SIGTERM" else 0
    assert process.wait(LONG_S) == expected
    assert person.is_as_before()


def in_a_terminal(path):
    """Return what makes a terminal that of a new session, as a shell does."""

    def become_its_session():
        os.setsid()
        fcntl.ioctl(os.open(path, os.O_RDWR), termios.TIOCSCTTY, 0)

    return become_its_session


def test_ctrl_c_ends_a_batch_and_restores_the_terminal(worker, person, tmp_path):
    words = (*LAKE, "--seeds", "0:2", "--telemetry-dir", str(tmp_path))
    process = worker(*words, preexec_fn=in_a_terminal(person.path), cwd=tmp_path)
    for key in "21":  # into a hole
        person.sees("action 3")
        person.types(key)
    record = json.loads(process.stdout.readline())
    assert (record["seed"], record["terminated"]) == (0, True)
    person.sees("action 3")
    person.types("\x03")
    assert process.wait(LONG_S) == 128 + signal.SIGINT
    assert person.is_as_before()


def test_the_launcher_names_its_terminal(launcher, monkeypatch, person):
    config = OperatorConfig("human", "me", "FrozenLake-v1")
    monkeypatch.setattr(os, "isatty", lambda fd: fd == 2)
    monkeypatch.setattr(os, "ttyname", lambda fd: person.path)
    command = launcher._build_human_command(config, "run", True)
    assert command[-1] == f"--tty={person.path}"
    with OperatorLauncher(terminal=False) as page:
        assert page._build_human_command(config, "run", True)[-1] == "--no-terminal"
    monkeypatch.setattr(os, "isatty", lambda fd: False)
    assert not [w for w in launcher._build_human_command(config, "run", True) if "--tty" in w]


# ---------------------------------------------------------------------- in this process


class Scripted:
    """A terminal at which is typed what a test says."""

    def __init__(self, *typed):
        self.typed, self.shown = list(typed), []
        self.show = self.shown.append

    def read_key(self):
        return self.typed.pop(0)

    read_line = read_key

    def close(self):
        self.closed = True


def decided(space, *typed, names=None, keys=None, observation=0, info=None):
    terminal = Scripted(*typed)
    view = None if names is None else lambda: ("as text", names)
    agent = HumanAgent(lambda: terminal, keys, view)
    agent.bind(None, space)
    decision = agent.decide(observation, info or {})
    agent.close()
    assert terminal.closed
    return decision, terminal.shown


def test_arrows_belong_to_actions_that_are_called_so():
    names = ["left", "right", "forward", "pickup"]
    for key, action in (("left", 0), ("right", 1), ("up", 2), ("3", 3), ("0", 0)):
        decision, shown = decided(spaces.Discrete(4), "down", key, names=names)
        assert (decision.action, decision.raw) == (action, key)
    assert shown[:2] == ["as text", "[0/left] left  [1/right] right  [2/up] forward  [3] pickup"]


def test_actions_begin_where_the_space_does():
    assert decided(spaces.Discrete(3, start=-1), "0")[0].action == -1
    assert decided(spaces.Discrete(12), "b")[0].action == 11


def test_players_see_the_text_of_the_game_and_enter_legal_actions():
    info = {"text": "your move", "legal_actions": [3, 8]}
    decision, shown = decided(spaces.Discrete(9), "4", "x", "8", info=info)
    assert decision[:3] == (8, "8", 8)
    assert shown[:2] == ["your move", "one of [3, 8]:"]


def test_names_of_other_actions_are_refused():
    agent = HumanAgent(lambda: Scripted(), names=["left", "right"])
    with pytest.raises(
        ValueError, match=r"names: expected one name per action of Discrete\(3\), got"
    ):
        agent.bind(None, spaces.Discrete(3))
    agent.bind(None, spaces.Discrete(2))


def test_keys_of_other_actions_are_refused():
    with pytest.raises(ValueError, match=r"keys: 'w': expected an action of Discrete\(2\), got 2"):
        decided(spaces.Discrete(2), keys={"w": 2})


@pytest.mark.parametrize(
    ("policy", "keys", "match"),
    [
        ("random", None, "--policy: expected no policy, because a person decides, got 'random'"),
        (None, {}, "keys: expected an object from key to action"),
        (None, {"w": True}, "keys: 'w': expected a whole number, got True"),
        (None, ["w"], "keys: expected an object from key to action"),
        (None, "names", "action_names: expected a list of names, got 'names'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(policy, keys, match):
    given = worker_parser("human_worker", "").parse_args([f"--policy={policy}"] if policy else [])
    with pytest.raises(ValueError, match=match):
        load(given, {"action_names": keys} if keys == "names" else {"keys": keys}, None)


def test_what_is_no_terminal_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TerminalError, match="to read keys from, got another kind of file"):
        Terminal(str(tmp_path / "file"))
    with pytest.raises(TerminalError, match="to read keys from: No such file or directory"):
        Terminal(str(tmp_path / "gone"))
