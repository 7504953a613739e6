"""The contract of docs/operators_dashboard.md, with real workers and without a browser."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import numpy as np
import pytest
from drawn_env import DrawnEnv
from PIL import Image
from rest_and_socket import FrameReader, RestServer
from websockets.exceptions import ConnectionClosed

from parllel.testing import Service

DRAWN = f"{Path(__file__).with_name('drawn_env.py')}:make"
SCRIPT = """
from parllel.distributed.operators import Experiment, OperatorConfig

def one(name):
    return OperatorConfig("baseline", name, "CartPole-v1", policy="random", max_steps=5)

experiment = Experiment("watched", [one("left"), one("right")], seeds=[3, 4])
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contract")
    with Service("contract") as service, RestServer(folder) as served:
        service.adopt(served.process.pid)
        yield served


@pytest.fixture
def served(shared):
    """A server without cards, which the tests of this file share."""
    yield shared
    shared.wish("stop")
    for card in shared.state()["cards"]:
        shared.wish("remove", card=card["id"])


def test_operators_are_played_and_compared(served):
    state = served.wish("cards", operator=served_operator("a", max_steps=5))
    assert [(card["id"], card["status"]) for card in state["cards"]] == [("a", "new")]
    served.launch("b", max_steps=5)
    assert served.wish("step", status=409)["error"].startswith(
        "card 'a': expected a card that is in an"
    )
    served.wish("reset", seed=7)
    cards = served.await_status("ready")
    assert {card["seed"] for card in cards.values()} == {7}
    served.wish("step", cards=["a"])
    cards = served.cards_where(lambda card: card["step"] == (card["id"] == "a"))
    assert cards["a"]["last"]["action"] in (0, 1)
    served.wish("speed", steps_per_s=None)
    assert served.wish("play")["phase"] == "playing"
    cards = served.await_status("ended")
    assert all(card["episode_reward"] == card["step"] == 5 for card in cards.values())
    served.wish("reset")
    assert served.state()["seed"] == 8
    (run,) = served.rest.get("/api/experiments").json()["experiments"]
    assert {"a", "b"} <= set(run["operators"])
    results = served.rest.get("/api/results", params={"run": run["run"]}).json()
    (group,) = (one for one in results["groups"] if "CartPole" in one["label"])
    assert [one["ended"] for one in group["operators"][:2]] == [1, 1]
    assert group["sentences"]


def served_operator(operator_id, **fields):
    operator = {"operator_type": "baseline", "policy": "random", "env_id": "CartPole-v1"}
    return {**operator, "operator_id": operator_id, **fields}


def test_frames_are_what_the_environment_draws(served):
    served.launch("drawn", env_id=DRAWN)
    with served.socket() as page:
        reader = FrameReader(page, ["drawn"])
        served.wish("reset", seed=3)
        while (taken := reader.take()) is None:
            pass
        env = DrawnEnv("rgb_array")
        env.reset(seed=3)
        episode = served.cards_where(lambda card: card["status"] == "ready")["drawn"]["episode"]
        assert taken[0] == {"card": "drawn", "number": 1, "episode": episode, "step": 0}
        assert np.array_equal(picture(taken[1]), env.render())
        served.wish("step")
        while (taken := reader.take()) is None or taken[0]["step"] < 1:
            pass
        env.step(served.cards_where(lambda card: card["step"] == 1)["drawn"]["last"]["executed"])
        assert np.array_equal(picture(taken[1]), env.render())
        assert served.rest.get("/api/frame?card=drawn").content == taken[1]


def picture(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_a_person_answers_over_rest(served):
    served.wish("cards", operator={
        "operator_type": "human", "operator_id": "me", "env_id": "FrozenLake-v1",
        "env_kwargs": {"is_slippery": False},
    })  # fmt: skip
    served.wish("reset", seed=0)
    served.await_status("ready")
    served.wish("step", cards=["me"])
    (question,) = served.await_status("waiting")["me"]["questions"]
    assert [one["action"] for one in question["actions"]] == [0, 1, 2, 3]
    number = question["number"]
    assert (
        "expected one of 0, 1, 2, 3"
        in served.wish("act", status=400, card="me", number=number, action=9)["error"]
    )
    served.wish("act", status=409, card="me", number=number + 7, action=1)
    served.wish("act", card="me", number=number, action=1)
    card = served.cards_where(lambda card: card["step"] == 1)["me"]
    assert card["last"]["executed"] == 1
    served.wish("act", status=409, card="me", number=number, action=1)


def test_a_script_is_watched(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    other = tmp_path / "other.py"
    other.write_text("experiment = None\n")
    with RestServer(tmp_path, script, other) as served:
        state = served.state()
        # Of several scripts, none is executed before it is watched.
        assert (state["cards"], len(state["scripts"])) == ([], 2)
        served.wish("watch", script=state["scripts"][0])
        limit = 1000
        while (experiment := served.state()["experiment"])["state"] == "starting" and limit:
            limit -= 1
        assert experiment["name"] == "watched"
        served.wish("reset", status=409)
        served.wish("speed", steps_per_s=None)
        served.cards_where(lambda card: card["status"] != "starting")
        served.wish("play")
        while (experiment := served.state()["experiment"])["state"] == "running":
            pass
        assert (experiment["state"], experiment["n_done"]) == ("ended", 4)
        assert served.wish("unwatch")["experiment"] is None
        runs = served.rest.get("/api/experiments").json()["experiments"]
        assert {run["name"] for run in runs} == {"watched", "board"}


def closed_with(page):
    """Take what comes until the WebSocket is closed; return the code."""
    try:
        while True:
            page.recv(timeout=20)
    except ConnectionClosed as closed:
        return closed.rcvd.code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(tmp_path, number):
    with RestServer(tmp_path) as served:
        served.launch("a")
        served.wish("reset")
        served.await_status("ready")
        worker = served.worker("a")
        with served.socket() as page:
            page.recv(timeout=20)
            assert served.terminate(number) == (0, "")
            assert closed_with(page) == 1001
        assert not worker.is_running()


def test_a_second_one_at_the_same_port_is_refused_and_leaves_nothing(served, tmp_path):
    port = served.base_url.rpartition(":")[2]
    command = [sys.executable, "-m", "parllel", "operators", "dashboard", "--port", port]
    command += ["--dir", str(tmp_path / "second")]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert second.stderr == (
        f"parllel: [Errno 98] 127.0.0.1:{port} is in use. Stop the program that listens there, or choose "
        "another --port\n"
    )
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize("missing", ["h11", "websockets"])
def test_a_library_that_is_missing_is_named_with_its_extra(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
from parllel.cli import main
sys.exit(main(["operators", "dashboard"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    said = f"needs {missing}: pip install '.[operators]' in a checkout of parllel\n"
    assert done.stderr.endswith(said)
    assert done.stderr.count("\n") == 1


def test_a_board_goes_on_after_a_restart(tmp_path):
    with RestServer(tmp_path) as served:
        served.launch("a", max_steps=3)
        served.wish("speed", steps_per_s=4.0)
        served.wish("reset", seed=5)
        served.await_status("ready")
        folder, token = served.state()["folder"], served.token
        port = served.base_url.rpartition(":")[2]
        assert served.terminate() == (0, "")
    with RestServer(tmp_path, "--board", folder, port=port) as served:
        assert served.token == token
        state = served.state()
        assert [card["id"] for card in state["cards"]] == ["a"]
        assert state["speed"] == 4.0
        served.wish("reset")
        assert served.await_status("ready")["a"]["seed"] == 6


def test_operators_of_a_script_are_the_first_cards_and_the_token_is_that_of_a_file(tmp_path):
    script, path = tmp_path / "script.py", tmp_path / "secret"
    script.write_text(SCRIPT)
    path.write_text("a-token-of-some-length\n")
    path.chmod(0o600)
    with RestServer(tmp_path / "runs", script, "--token-file", path) as served:
        assert [card["id"] for card in served.state()["cards"]] == ["left", "right"]
        assert served.token == "a-token-of-some-length"
        for path in ("/", "/api/state"):
            reply = httpx2.get(served.base_url + path, trust_env=False)
            assert reply.status_code == 401
            assert "token" not in reply.headers.get("www-authenticate", "")
        browser = httpx2.Client(base_url=served.base_url, trust_env=False, follow_redirects=True)
        with browser:
            assert "<!doctype html>" in browser.get("/?token=a-token-of-some-length").text.lower()
            assert browser.get("/api/state").status_code == 200
