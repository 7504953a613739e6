"""Arrays of numpy from servers and agents: they play, or fail, and never end an episode.

Memory is looked at in a process of its own, whose address space is limited: what a message of a hundred bytes
asks for is never made.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from agent_setup import context
from foreign_protobuf import Npy, foreign_server, npy_of
from serving import kaggle_server

from parllel.distributed.remote import Agent, AgentFailure, make
from parllel.distributed.remote.plain_values import plain
from parllel.distributed.remote.proto.numpy_file import read_array
from parllel.distributed.remote.remote_reply import action_in, actions_in
from parllel.distributed.wire import WireError

SHORT = {"episodeSteps": 3, "tieRewardThreshold": 1}


def played(reply, configuration=SHORT):
    """Return the last states of an episode of `rps` against a foreign server and "rock"."""
    with (
        foreign_server(reply) as url,
        make("rps", {**configuration, "actTimeout": 20}) as env,
    ):
        return env.run([{"type": "proto", "url": url}, "rock"])[-1]


@pytest.mark.parametrize("action", [np.int64(1), np.array(1), np.uint8(1), np.array(1, ">i2")])
def test_a_number_of_numpy_in_a_foreign_reply_is_an_action(action):
    states = played(lambda observation: {"action": action})
    assert [(one["status"], one["reward"]) for one in states] == [("DONE", 2), ("DONE", -2)]


@pytest.mark.parametrize(
    "reply",
    [
        {"action": np.array([1, 2])},
        {"action": np.array(["DeadlineExceeded", "a"])},
        {"action": np.zeros((2, 0))},
        {"action": np.array("text")},
    ],
)
def test_an_array_in_a_foreign_reply_costs_its_own_agent_the_action(reply):
    first, second = played(lambda observation: reply)
    assert (first["status"], first["action"]) == ("INVALID", None)
    assert (second["status"], second["reward"]) == ("DONE", 1)


@pytest.mark.parametrize(
    ("reply", "status", "reason"),
    [
        ({"action": np.str_("DeadlineExceeded")}, "TIMEOUT", "its server reports"),
        ({"action": 1, "status": np.array([1, 2])}, "ERROR", '"status"'),
        ({"action": 1, "status": np.array(["ERROR", "ERROR"])}, "ERROR", '"status"'),
        ({"error": np.zeros((3, 4))}, "ERROR", "answered: "),
        ({"action": None, "status": "TIMEOUT", "reason": np.zeros(9)}, "TIMEOUT", "array"),
        (np.zeros(3), "ERROR", "answered with ndarray instead of an object"),
        (np.float64(3), "ERROR", "instead of an object"),
        ({"action": Npy(npy_of((20_000_000, 0)))}, "ERROR", "shape"),
        ({"action": Npy(npy_of((1 << 40, 0, 1 << 22)))}, "ERROR", "shape"),
        ({"action": Npy(npy_of((3,), "|V1000000"))}, "ERROR", "numbers or text"),
        ({"action": Npy(npy_of((0,), "<U500000000"))}, "ERROR", "np.save"),
        ({"action": Npy(npy_of((1 << 60,), "<U0"))}, "ERROR", "np.save"),
    ],
)
@pytest.mark.few(5)
def test_a_reply_of_arrays_is_a_failure_with_a_reason(reply, status, reason):
    first, second = played(lambda observation: reply)
    assert first["status"] == status
    assert reason in first["info"]["reason"]
    assert second["status"] == "DONE"


def test_replies_are_read_without_comparing_arrays():
    for value in (np.zeros(3), np.array(["a", "b"]), np.zeros((2, 0))):
        assert action_in({"action": value}) is value
        (found,) = actions_in({"actions": [value]}, 1)
        assert found is value


@pytest.mark.parametrize("index", ["9" * 5000, "²", "-1", "1.0", "٣"])
def test_failures_of_a_batch_at_no_place_are_not_looked_at(index):
    reply = {"actions": [1, 2], "failures": {index: {"status": "ERROR", "reason": "x"}}}
    assert actions_in(reply, 2) == [1, 2]


def test_a_status_is_text():
    assert action_in({"action": 1, "status": ["ERROR"]}).status == "ERROR"
    # What other servers may say of an action is not ours.
    assert action_in({"action": 1, "status": "ok"}) == 1
    assert action_in({"action": 1, "status": None}) == 1


# ---------------------------------------------------------------------- values of JSON


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((20_000_000, 0)),
        np.zeros((1000, 1001, 0, 5)),
        np.zeros((1_000_000, 1)),
        np.zeros((2, 0, 1 << 40)),
    ],
)
def test_rows_of_an_array_count_as_values(array):
    if array.shape[:2] == (2, 0):
        assert plain(array) == [[], []]
        return
    with pytest.raises(WireError, match="expected at most 1000000 values"):
        plain([array])


def test_an_array_is_as_deep_as_its_dimensions():
    value = np.zeros((1,) * 30)
    for _ in range(34):
        value = [value]
    assert plain(value)
    with pytest.raises(WireError, match="nested more than 64 levels deep"):
        plain([value])


def test_a_long_double_is_no_number_of_json():
    for value in (np.longdouble(1), np.zeros(2, np.longdouble)):
        if value.dtype.itemsize > 8:
            with pytest.raises(WireError, match="float"):
                plain(value)


# ---------------------------------------------------------------------- files of numpy


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (npy_of((20_000_000, 0)), r"shape \(20000000, 0\)"),
        (npy_of((0, 1 << 62)), "shape"),
        (npy_of((1,) * 33, "<f8", b"8" * 8), "an invalid shape"),
        (npy_of((-1, 0)), "an invalid shape"),
        (npy_of((True, 0)), "an invalid shape"),
        (npy_of((1,), "|V8", b"8" * 8), "expected an array of numbers or text"),
        (npy_of((1,), [("a", "<f8")], b"8" * 8), "expected an array of numbers or text"),
        (npy_of((1,), "|O", b"8" * 8), "expected an array of numbers or text"),
        (npy_of((0,), "<U536870911"), "np.save"),
        (npy_of((0, 3), "|S1000000000"), "np.save"),
        (npy_of((4,), "|S0"), "np.save"),
        (b"", "expected a file written by np.save"),
        (b"PK\x03\x04", "expected a file written by np.save"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, "expected a file written by np.save: "),
        (npy_of((2**40,), "<f8", b"1234"), f"of {8 * 2**40} bytes, got 4"),
        (npy_of((2**62, 4)), "bytes, got 0"),
        (npy_of((0, 2**62, 2**62)), "empty array of shape"),
        (npy_of((2**62,), "|S0"), "expected a file written by np.save"),
    ],
)
def test_files_that_promise_what_they_do_not_hold_are_refused(file, said):
    with pytest.raises(WireError, match=said):
        read_array(file)


def test_empty_arrays_keep_their_shapes():
    for shape in ((0,), (3, 0), (0, 210, 160, 3), (128, 0, 84, 84)):
        assert read_array(npy_of(shape)).shape == shape
    assert read_array(npy_of((0,), "<U7")).dtype == "<U7"


# ---------------------------------------------------------------------- memory


def test_no_message_takes_memory_that_it_does_not_bring(tmp_path):
    program = Path(__file__).with_name("fuzzed_arrays.py")
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=300,
        env={"OPENBLAS_NUM_THREADS": "1"},
        cwd=tmp_path,
    )
    assert done.stdout == "bounded\n", done.stderr[-3000:]


# ---------------------------------------------------------------------- our server, their servers


ARRAYS = """
import numpy as np

def agent(observation, configuration):
    kinds = {0: np.int64(1), 1: np.array(1), 2: np.zeros((2, 0)), 3: np.zeros((20_000_000, 0))}
    return kinds[observation.get("kind", 0)]
"""


def test_an_agent_in_a_process_that_returns_arrays_fails_alone(tmp_path):
    file = tmp_path / "arrays.py"
    file.write_text(ARRAYS)
    with Agent(str(file), context()) as agent:
        assert [agent.act({"kind": kind})[0] for kind in (0, 1, 2)] == [1, 1, [[], []]]
        failure, _ = agent.act({"kind": 3})
        assert failure == AgentFailure(
            "INVALID", "returned an invalid action: expected at most 1000000 values"
        )


def test_a_configuration_may_hold_arrays_that_change(tmp_path):
    file = tmp_path / "configured.py"
    file.write_text("def agent(observation, configuration):\n    return configuration.mine.sum()\n")
    environment = context(mine=np.arange(3))
    with Agent(str(file), environment) as agent:
        assert agent.act({})[0] == 3
        environment.configuration["mine"] = np.arange(4)
        assert agent.act({})[0] == 6


def test_arrays_of_an_agent_behind_the_packages_server_never_end_an_episode(
    kaggle_python, tmp_path
):
    file = tmp_path / "agent.py"
    file.write_text(
        "import numpy as np\ndef agent(observation, configuration):\n    return np.array([1, 2])\n"
    )
    with kaggle_server(kaggle_python) as url, make("rps", {**SHORT, "actTimeout": 20}) as env:
        first, second = env.run([f"{url}/?agents[]={file}", "rock"])[-1]
    assert first["status"] in ("ERROR", "INVALID")
    assert (second["status"], second["reward"]) == ("DONE", 1)
