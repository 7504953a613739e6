"""Workers that play by themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import gymnasium as gym
import pytest
from launching import LONG_S

from parllel.distributed.operators import Experiment, OperatorConfig, read_telemetry
from parllel.distributed.operators.experiments.telemetry import telemetry_path
from parllel.distributed.operators.workers import operators_worker
from parllel.policies import play_episodes, policy_of

ENVS = """
import os
import gymnasium as gym

class Faulty(gym.Wrapper):
    def reset(self, *, seed=None, options=None):
        print("reset", seed)
        self.fails = seed == 1
        return self.env.reset(seed=seed)

    def step(self, action):
        if self.fails:
            raise RuntimeError("it fell over")
        return self.env.step(action)

    def close(self):
        open(os.environ["CLOSED"], "w").close()

def faulty():
    return Faulty(gym.make("CartPole-v1"))

class Interrupted(Faulty):
    def step(self, action):
        # As in imports, where the methods of dataclasses are compiled from strings.
        exec("import os, signal\\nos.kill(os.getpid(), signal.SIGINT)\\nfor _ in range(10**6): pass")

def interrupted():
    return Interrupted(gym.make("Pendulum-v1"))

def endless():
    return Faulty(gym.make("Pendulum-v1", max_episode_steps=10**9))
"""


@pytest.fixture
def worker(tmp_path):
    """A function that starts a batch in a folder of its own."""
    (tmp_path / "envs.py").write_text(ENVS)
    started = []

    def start(*words, module="operators_worker", **variables):
        command = [sys.executable, "-m", f"parllel.distributed.operators.workers.{module}", *words]
        environment = {**os.environ, "CLOSED": str(tmp_path / "closed"), **variables}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def played(process):
    """Return the records of a batch's episodes, its exit status and what it said."""
    out, errors = process.communicate(timeout=LONG_S)
    return [json.loads(line) for line in out.splitlines()], process.returncode, errors


CART = ("--env-id", "CartPole-v1", "--policy", "random")


def test_a_batch_plays_the_episodes_of_its_seeds_and_writes_telemetry(worker, tmp_path):
    words = ("--seeds", "3:5,9", "--telemetry-dir", "kept", "--run-id", "r1")
    records, status, errors = played(worker(*CART, *words, OPERATOR_ID="op"))
    assert status == 0
    assert errors.splitlines()[0].startswith("episode 1 of 3, seed 3: return ")
    env = gym.make("CartPole-v1")
    policy = policy_of("random", env.observation_space, env.action_space)
    expected = play_episodes(policy, lambda: env, [3, 4, 9], n_envs=1, keep_actions=True)
    steps = list(read_telemetry(telemetry_path(tmp_path / "kept", "r1", "steps")))
    assert list(read_telemetry(telemetry_path(tmp_path / "kept", "r1", "episodes"))) == records
    for number, (record, one) in enumerate(zip(records, expected, strict=True)):
        assert record.pop("latency_s") > 0
        assert record.pop("time") > 0
        labels = {"run_id": "r1", "operator_id": "op", "env_id": "CartPole-v1"}
        labels.update(episode=number, seed=one.seed)
        end = {"terminated": one.terminated, "truncated": one.truncated, "success": None}
        assert record == {
            **labels,
            "status": "ended",
            "total_reward": one.traj.return_,
            "episode_length": one.traj.length,
            **end,
            "restarts": 0,
        }
        mine = [step for step in steps if step["episode"] == number]
        assert [step["action"] for step in mine] == list(one.actions)
        assert [step["step"] for step in mine] == list(range(1, one.traj.length + 1))
        assert all(labels.items() <= step.items() for step in mine)
        assert mine[-1]["terminated"]
        assert mine[-1]["episode_reward"] == one.traj.return_


def test_a_batch_leaves_the_records_of_an_experiment(worker, tmp_path):
    config = OperatorConfig("baseline", "op", "CartPole-v1", policy="random")
    result = Experiment("same", [config], seeds=[3, 4]).run(base=tmp_path)
    played(worker(*CART, "--seeds", "3,4", "--run-id", "mine", OPERATOR_ID="op"))
    for kind in ("steps", "episodes"):
        (path,) = (result.folder / "telemetry").glob(f"*_{kind}.jsonl")
        mine = telemetry_path(tmp_path / "var/operators/telemetry", "mine", kind)
        expected, found = [list(read_telemetry(records)) for records in (path, mine)]
        assert [list(record) for record in found] == [list(record) for record in expected]
        for one in (*expected, *found):
            for name in ("run_id", "time", "latency_s", "decide_s"):
                one.pop(name, None)
        assert found == expected


def test_seeds_and_folders_by_default(worker, tmp_path):
    records, status, _ = played(worker(*CART, "--episodes", "2", "--seed", "7", "--max-steps", "4"))
    assert status == 0
    assert [(record["seed"], record["episode_length"]) for record in records] == [(7, 4), (8, 4)]
    assert [record["truncated"] for record in records] == [True, True]
    run_id = records[0]["run_id"]
    assert telemetry_path(tmp_path / "var/operators/telemetry", run_id, "steps").is_file()
    variables = {"TELEMETRY_DIR": str(tmp_path / "mine"), "OPERATOR_RUN_ID": "given"}
    records, status, _ = played(worker(*CART, **variables))
    assert [(record["run_id"], record["seed"]) for record in records] == [("given", 0)]
    assert telemetry_path(tmp_path / "mine", "given", "steps").is_file()
    # Those of an earlier run are kept.
    records, status, errors = played(worker(*CART, **variables))
    assert (records, status) == ([], 1)
    assert "telemetry of this run already exists" in errors


def test_a_failed_episode_is_recorded_and_the_next_one_played(worker, tmp_path):
    records, status, errors = played(
        worker("--env-id", "envs.py:faulty", "--random", "--seeds", "0:3", "--max-steps", "5")
    )
    assert status == 1
    assert [record["status"] for record in records] == ["ended", "failed", "ended"]
    assert records[1]["failure"] == "RuntimeError: it fell over"
    assert records[1]["episode_length"] == 0
    # What is printed stays away from the records.
    assert "reset 2" in errors
    assert (tmp_path / "closed").exists()


def test_an_interrupt_within_compiled_text_has_the_status_of_any_other(worker, tmp_path):
    process = worker("--env-id", "envs.py:interrupted", "--random", "--seeds", "0:9")
    records, status, _ = played(process)
    assert (records, status) == ([], 130)
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_batch_in_order(worker, tmp_path, number):
    words = ("--env-id", "envs.py:endless", "--random", "--seeds", "0:9", "--run-id", "long")
    process = worker(*words)
    path = telemetry_path(tmp_path / "var/operators/telemetry", "long", "steps")
    assert process.stderr.readline() == "reset 0\n"
    process.send_signal(number)
    records, status, _ = played(process)
    assert (records, status) == ([], 128 + number)
    assert (tmp_path / "closed").exists()
    steps = [step["step"] for step in read_telemetry(path)]
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("--random",), "--env-id: expected the name of an environment"),
        ((*CART, "--seeds", "3:3"), "--seeds: expected seeds such as 0-99, 0:100 or 3,5,8-10, got '3:3'"),
        ((*CART, "--seeds", "1", "--seed", "2"), "--seeds: cannot be combined with --episodes or --seed"),
        ((*CART, "--episodes", "0"), "--episodes: expected a whole number of at least 1, got '0'"),
        ((*CART, "--env-kwargs", "[1]"), "--env-kwargs: expected a JSON object, got '[1]'"),
        ((*CART, "--env-kwargs", "{"), "--env-kwargs: expected a JSON object: "),
        ((*CART, "--max-steps", "few"), "--max-steps: expected a whole number of at least 1"),
    ],
)  # fmt: skip
def test_arguments_that_make_no_sense_are_refused(monkeypatch, capsys, words, match):
    monkeypatch.setattr(sys, "argv", ["worker", *words])
    monkeypatch.setattr(
        "parllel.distributed.operators.workers.worker_main.take_streams", lambda: None
    )
    with pytest.raises(SystemExit, match="2"):
        operators_worker.main()
    assert match in capsys.readouterr().err


def test_an_operator_that_is_not_interactive_plays_by_itself(launcher):
    config = OperatorConfig("baseline", "one", "CartPole-v1", policy="random", max_steps=5)
    handle = launcher.launch_operator(config, "alone")
    assert handle.process.wait(LONG_S) == 0
    (record,) = read_telemetry(telemetry_path(launcher.telemetry_dir, "alone", "episodes"))
    assert (record["operator_id"], record["episode_length"]) == ("one", 5)
    log = (launcher.log_dir / "alone.log").read_text().splitlines()
    assert record in [json.loads(line) for line in log if line.startswith("{")]
