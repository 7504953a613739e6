"""A handle against a worker that misbehaves: each command gets its own reply, a time-out, or a death."""

from __future__ import annotations

import time

import pytest
from launching import LONG_S, Hostile

from parllel.errors import (
    BadReplyError,
    ClosedError,
    WorkerDiedError,
    WorkerTimeoutError,
    WrongStateError,
)

WAYS = pytest.mark.parametrize("way", [(), ("--no-ids",)], ids=["ids", "no ids"])
FLAGS = {"terminated": False, "truncated": False}
STEP = {"type": "step", "step_index": 1, "action": 1, "reward": 1.0, "episode_reward": 1.0, **FLAGS}


@WAYS
def test_an_episode(hostile: Hostile, way: tuple[str, ...]) -> None:
    worker = hostile(*way)
    worker.send_reset(7)
    assert worker.read_response(LONG_S) == {"type": "ready", "seed": 7}
    worker.send_step()
    assert worker.read_response(LONG_S) == STEP
    worker.send_step(action=["end"])
    assert worker.read_response(LONG_S)["terminated"] is True
    end = worker.read_response(LONG_S)
    assert (end["type"], end["total_reward"]) == ("episode_end", 2.0)
    worker.send_ping()
    assert worker.read_response(LONG_S) == {"type": "pong"}
    worker.send_stop()
    with pytest.raises(WrongStateError, match="cannot send 'step' after 'stop'"):
        worker.send_step()
    assert worker.read_response(LONG_S) == {"type": "stopped"}
    assert not worker.is_running
    with pytest.raises(ClosedError, match="operator 'hostile': used after it was ended"):
        worker.send_step()


@WAYS
def test_a_late_reply_is_for_no_other_command(hostile: Hostile, way: tuple[str, ...]) -> None:
    worker = hostile(*way)
    worker.send_reset(1)
    worker.send_step(action=[["sleep", 0.3], "reply"])
    with pytest.raises(
        WorkerTimeoutError, match=r"operator 'hostile': process \d+ did not answer 'step' within"
    ):
        worker.read_response(0.01)
    worker.send_step(action=["end"])
    assert worker.read_response(LONG_S)["step_index"] == 2
    worker.send_reset(2)
    assert worker.read_response(LONG_S)["seed"] == 2
    assert worker.n_left_out == 3  # `ready`, the first step, `episode_end`


@WAYS
def test_two_replies_for_one_command(hostile: Hostile, way: tuple[str, ...]) -> None:
    worker = hostile(*way)
    worker.send_reset(1)
    worker.send_step(action=["reply", ["tell", {**STEP, "episode_reward": 9}]])
    assert worker.read_response(LONG_S)["episode_reward"] == 1.0
    worker.send_step()
    assert worker.read_response(LONG_S)["step_index"] == 2


@WAYS
def test_episode_end_that_is_missing_or_double(hostile: Hostile, way: tuple[str, ...]) -> None:
    worker = hostile(*way)
    end = {"type": "episode_end", "total_reward": 0, "episode_length": 1}
    end |= {"terminated": True, "truncated": False}
    worker.send_reset(1)
    worker.send_step(action=[["tell", {**STEP, "terminated": True}]])
    assert worker.read_response(LONG_S)["type"] == "step"
    with pytest.raises(WorkerTimeoutError, match="did not answer 'step'"):
        worker.read_response(0.01)
    worker.send_reset(2)
    assert worker.read_response(LONG_S)["seed"] == 2
    worker.send_step(action=["end", ["tell", end]])
    assert [worker.read_response(LONG_S)["type"] for _ in range(2)] == ["step", "episode_end"]
    worker.send_ping()
    assert worker.read_response(LONG_S) == {"type": "pong"}


@WAYS
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("loading the model", "loading the model"),
        ('{"type": "surprise"}', "unknown reply 'surprise'"),
        ("[" * 5000, "begins with"),
        ('{"a": 1}', '"type"'),
        ("", "begins with ''"),
    ],
)
def test_garbage_is_named_and_the_next_reply_is_right(
    hostile: Hostile, way: tuple[str, ...], line: str, said: str
) -> None:
    worker = hostile(*way)
    worker.send_step(action=[["say", line], "reply"])
    with pytest.raises(
        BadReplyError, match=r"operator 'hostile': .* wrote a line that is not a reply"
    ) as raised:
        worker.read_response(LONG_S)
    assert said in str(raised.value)
    assert worker.read_response(LONG_S)["step_index"] == 1


@WAYS
def test_a_reply_without_what_it_must_have(hostile: Hostile, way: tuple[str, ...]) -> None:
    worker = hostile(*way)
    worker.send_step(action=[["tell", {**STEP, "reward": "much"}]])
    with pytest.raises(BadReplyError, match="reward"):
        worker.read_response(LONG_S)
    worker.send_step()
    assert worker.read_response(LONG_S)["step_index"] == 1


def test_an_error_without_an_id_answers(hostile: Hostile) -> None:
    worker = hostile()
    worker.send_reset(1)
    assert worker.read_response(LONG_S)["seed"] == 1
    worker.send_step(action=[["say", '{"type": "error", "message": "no"}'], "reply"])
    assert worker.read_response(LONG_S) == {"type": "error", "message": "no"}
    worker.send_step()
    assert worker.read_response(LONG_S)["step_index"] == 2


def test_replies_that_were_not_asked_for(hostile: Hostile) -> None:
    worker = hostile()
    worker.send_step(
        action=["reply", ["say", '{"type": "pong"}'], ["say", '{"type":"pong","id":99}']]
    )
    assert worker.read_response(LONG_S)["step_index"] == 1
    assert worker.try_read_response(0.2) is None
    assert worker.n_left_out == 2
    worker.send_ping()
    assert worker.read_response(LONG_S) == {"type": "pong"}


def test_a_worker_that_is_never_ready(hostile: Hostile) -> None:
    worker = hostile("--never-ready")
    worker.send_reset(1)
    assert worker.try_read_response(0.01) is None
    with pytest.raises(WorkerTimeoutError, match=r"did not answer 'reset' within 0\.1 s"):
        worker.read_response(0.1)
    assert worker.is_running


def test_death_in_a_step(hostile: Hostile) -> None:
    worker = hostile()
    worker.send_step(action=["reply", ["exit", 3]])
    assert worker.read_response(LONG_S)["type"] == "step"
    for _ in range(2):
        with pytest.raises(
            WorkerDiedError,
            match=r"operator 'hostile': process \d+ exited with code 3(.|\n)*last words",
        ):
            worker.read_response(LONG_S)
    with pytest.raises(WorkerDiedError, match="exited with code 3"):
        worker.send_step()
    assert not worker.is_running


def test_killed_in_half_a_line(hostile: Hostile) -> None:
    worker = hostile()
    worker.send_step(action=[["raw", '{"type": "st'], "kill"])
    with pytest.raises(WorkerDiedError, match="killed by SIGKILL in a line of which 12 bytes came"):
        worker.read_response(LONG_S)


def test_what_it_complained_of_is_part_of_its_death(hostile: Hostile) -> None:
    worker = hostile()
    complaint = '{"type": "error", "message": "Failed to load policy: no"}'
    worker.send_step(action=["reply", ["sleep", 0.2], ["say", complaint], ["exit", 1]])
    assert worker.read_response(LONG_S)["type"] == "step"
    assert worker.wait(LONG_S) == 1
    with pytest.raises(WorkerDiedError, match="it had reported: Failed to load policy: no"):
        worker.send_step()


def test_a_complaint_that_nothing_asked_for_is_read(hostile: Hostile) -> None:
    worker = hostile()
    worker.send_step(action=["reply", ["say", '{"type": "error", "message": "hot"}']])
    assert worker.read_response(LONG_S)["type"] == "step"
    assert worker.read_response(LONG_S) == {"type": "error", "message": "hot"}


def test_closed_output_of_a_worker_that_lives(hostile: Hostile) -> None:
    worker = hostile()
    worker.send_step(action=["close", "deaf"])
    with pytest.raises(WorkerDiedError, match="closed its end of the pipe, but runs on"):
        worker.read_response(LONG_S)
    assert worker.is_running


def test_floods(hostile: Hostile) -> None:
    worker = hostile()
    worker.send_step(action=[["errors", 50_000], ["flood", 5000], "reply"])
    for i in range(5000):
        with pytest.raises(BadReplyError, match=f"'line {i}'"):
            worker.read_response(LONG_S)
    assert worker.read_response(LONG_S)["step_index"] == 1


@WAYS
@pytest.mark.few(1)
def test_a_flood_of_replies_to_no_command(hostile: Hostile, way: tuple[str, ...]) -> None:
    worker = hostile(*way)
    worker.send_step(action=["reply", ["forever", {"type": "pong"}]])
    assert worker.read_response(LONG_S)["step_index"] == 1
    for _ in range(3):
        assert worker.try_read_response(0.05) is None
    worker.send_step()
    with pytest.raises(
        WorkerTimeoutError, match=r"did not answer 'step' .*; skipped [\d,]+ lines that answer"
    ):
        worker.read_response(0.05)


@WAYS
def test_many_megabytes_both_ways(hostile: Hostile, way: tuple[str, ...]) -> None:
    worker = hostile(*way)
    worker.send_step(action=[["large", 2**24]])
    assert len(worker.read_response(LONG_S)["raw"]) == 2**24
    worker.send_step(action=["reply", "x" * 2**24])
    assert worker.read_response(LONG_S)["step_index"] == 2


def test_a_write_that_is_not_taken(hostile: Hostile) -> None:
    worker = hostile()
    worker.write_timeout_s = 0.2
    worker.send_step(action=["deaf"])
    with pytest.raises(WorkerTimeoutError, match="only a part"):
        worker.send_step(action=["x" * 2**20])
    with pytest.raises(ClosedError, match="received only part of a message"):
        worker.send_step()


def test_stop_ends_what_the_worker_started(hostile: Hostile) -> None:
    worker = hostile("--stays", "--stubborn")
    worker.send_step(action=["fork", "reply"])
    assert worker.read_response(LONG_S)["step_index"] == 1
    worker.send_stop()
    assert worker.read_response(LONG_S) == {"type": "stopped"}
    assert not worker.is_running  # and the leak guard finds nothing
    with pytest.raises(ClosedError, match="used after it was ended"):
        worker.read_response(LONG_S)


@pytest.mark.parametrize("state", ["idle", "busy", "dead", "deaf"])
def test_end(hostile: Hostile, state: str) -> None:
    worker = hostile()
    orders = {"idle": ["fork", "reply"], "busy": ["fork", "stubborn", "reply", ["sleep", 60]]}
    orders |= {"dead": ["fork", "reply", ["exit", 1]], "deaf": ["stubborn", "reply", "deaf"]}
    worker.send_step(action=orders[state])
    assert worker.read_response(LONG_S)["step_index"] == 1
    began = time.monotonic()
    worker.end(grace_s=0.2)
    worker.close()
    assert time.monotonic() - began < LONG_S
    for send in (worker.send_step, worker.send_ping, worker.send_stop):
        with pytest.raises(WrongStateError, match="operator 'hostile'"):
            send()


def test_commands_for_an_operator_that_takes_none(launcher, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from parllel.distributed.operators import OperatorConfig

    config = OperatorConfig("program", "batch", worker=["sh", "-c", "echo out; echo err >&2"])
    worker = launcher.launch_operator(config, "run_1")
    for call in (worker.send_step, worker.try_read_response):
        with pytest.raises(
            WrongStateError, match="Cannot send a command to a non-interactive operator"
        ):
            call()
    assert worker.wait(LONG_S) == 0
    worker.end()
    log = tmp_path / "var/operators/logs/run_1.log"
    assert sorted(log.read_text().split()) == ["err", "out"]
