from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

from parllel.distributed.operators import Experiment, OperatorConfig

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
OPERATORS = EXAMPLES / "operators"
UNSOLVED = 1


def test_every_script_is_run_here():
    """Here `room.py` is the environment of the others."""
    scripts = {path.name for path in OPERATORS.rglob("*.py")}
    assert scripts == {"compare.py", "foreign_worker.py", "llm.py", "room.py", "train_minigrid.py"}


def trained(example, script, folder, *arguments):
    """Train for a moment, and return the folder of the run."""
    example(script, *arguments, "--runs", "runs", folder=folder, status=UNSOLVED)
    return next((folder / "runs").iterdir())


@pytest.fixture(scope="module")
def cartpole(example, tmp_path_factory):
    """A run that has learned a little: its episodes have different lengths."""
    folder = tmp_path_factory.mktemp("cartpole")
    return trained(example, "cartpole/train_ppo.py", folder, "--n-steps", "4096", "--T", "64")


@pytest.fixture(scope="module")
def minigrid(example, tmp_path_factory):
    folder = tmp_path_factory.mktemp("minigrid")
    budget = ["--n-steps", "1024", "--log-interval-steps", "512", "--n-eval-episodes", "2"]
    return trained(example, "operators/train_minigrid.py", folder, "--T", "32", *budget)


def test_a_room_is_a_row_of_numbers_for_a_trained_policy(minigrid):
    from parllel.policies import load_policy

    with load_policy(minigrid) as policy:
        env = policy.make_env()
        observation, _ = env.reset(seed=3)
        assert env.observation_space.contains(observation)
        # Walls, the floor and colours; a goal where it is in sight.
        assert observation.max() <= 1.0
        assert len(set(observation.tolist())) > 3
        assert env.action_space.contains(policy.act_one(observation))
        env.close()


def say(worker, *commands):
    """Return the replies of a worker to some commands."""
    lines = "".join(f"{json.dumps(command)}\n" for command in commands)
    done = subprocess.run(worker, input=lines, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


FOREIGN = [sys.executable, "-I", "-S", str(OPERATORS / "foreign_worker.py")]


def test_the_foreign_worker_ends_episodes_once_and_refuses_what_it_does_not_know():
    replies = say(
        [*FOREIGN, "--care", "0"],
        {"cmd": "step", "id": "early"},
        {"cmd": "reset", "seed": 5, "max_steps": 2},
        {"cmd": "step"},
        {"cmd": "step", "id": 7},
        {"cmd": "step"},
        ["step"],
        {"cmd": "jump"},
        {"cmd": "ping"},
        {"cmd": "stop"},
    )
    kinds = [reply["type"] for reply in replies]
    assert kinds[:6] == ["error", "ready", "step", "step", "episode_end", "error"]
    assert kinds[6:] == ["error", "error", "pong", "stopped"]
    assert (replies[0]["id"], replies[3]["id"], replies[4]["id"]) == ("early", 7, 7)
    assert replies[3]["truncated"] is True
    end = replies[4]
    assert (end["episode_length"], end["terminated"], end["truncated"]) == (2, False, True)
    assert end["total_reward"] == pytest.approx(-0.02)


def test_the_foreign_worker_plays_the_same_episode_for_the_same_seed():
    def episode(seed):
        commands = [{"cmd": "reset", "seed": seed, "max_steps": 9}, *[{"cmd": "step"}] * 9]
        replies = say([*FOREIGN, "--care", "0.5"], *commands)
        return [reply.get("action") for reply in replies]

    episodes = [episode(seed) for seed in range(6)]
    assert episode(3) == episodes[3]
    assert len({str(one) for one in episodes}) > 3


def test_a_language_model_crosses_the_lake_or_does_not(tmp_path):
    command = [sys.executable, "-m", "parllel", "operators", "run", str(OPERATORS / "llm.py")]
    done = subprocess.run(
        [*command, "--set", "n_seeds=3"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "runs" / "llm" / "results.json").read_text())["results"]
    model, random = results[0]["operators"]
    assert (model["ended"], random["ended"]) == (3, 3)
    assert model["total_cost"] > 0
    assert "total cost" in done.stdout


@pytest.fixture(scope="module")
def python_alone(tmp_path_factory):
    """The Python of a virtual environment that has nothing else."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    command = [python, "-c", "import parllel"]
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert "No module named 'parllel'" in done.stderr
    return str(python)


@pytest.mark.usefixtures("open_fonts")
def test_the_foreign_worker_takes_part_in_an_experiment(python_alone, tmp_path):
    worker = [python_alone, "-I", str(OPERATORS / "foreign_worker.py")]
    operators = [
        OperatorConfig("program", name, "corridor", worker=[*worker, "--care", care])
        for name, care in (("careless", "0.5"), ("careful", "0.9"))
    ]
    result = Experiment("corridor", operators, seeds=range(20)).run(tmp_path)
    assert result.exit_status == 0, result.failures
    (group,) = result.groups
    careless, careful = group.operators
    assert (careless.ended, careful.ended) == (20, 20)
    assert careful.success.mean == 1.0
    # The goal is worth 1, and a step to it costs 0.01.
    steps = telemetry(result.folder, "careful", "steps")
    goals = sum(step["terminated"] for step in steps)
    assert goals == 20
    expected = (goals - 0.01 * (len(steps) - goals)) / 20
    assert careful.total_reward.mean == pytest.approx(expected)
    (difference,) = group.differences
    assert difference.total_reward.low > 0


def telemetry(folder, operator, kind):
    """Return the records of an operator, without times."""
    (path,) = Path(folder, "telemetry").glob(f"*_{operator}_{kind}.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    times = ("time", "latency_s", "decide_s")
    return [{key: one[key] for key in one if key not in times} for one in records]


def compare(folder, *arguments, base="runs"):
    """Play the comparison in a folder that holds the examples, and return the folder of its run."""
    script = folder / "examples" / "operators" / "compare.py"
    command = [sys.executable, "-m", "parllel", "operators", "run", script, "--dir", base]
    done = subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return max(Path(folder, base).glob("compare*"), key=lambda path: path.stat().st_mtime_ns)


def without_names(records):
    return [
        {key: one[key] for key in one if key not in ("run_id", "operator_id")} for one in records
    ]


def test_a_run_plays_the_same_episodes_behind_a_url(cartpole, minigrid, tmp_path):
    values = [f"cartpole={cartpole}", f"minigrid={minigrid}", "n_seeds=3", "port=0"]
    changes = [word for value in values for word in ("--set", value)]
    folder = compare(EXAMPLES.parent, *changes, base=str(tmp_path))
    for kind in ("steps", "episodes"):
        trained, served = (telemetry(folder, name, kind) for name in ("trained", "served"))
        assert without_names(trained) == without_names(served)
    assert len({episode["total_reward"] for episode in served}) > 1
    results = json.loads((folder / "results.json").read_text())["results"]
    names = [[one["operator_id"] for one in group["operators"]] for group in results]
    assert names == [
        ["trained", "served", "random", "noop"],
        ["room-trained", "room-random", "room-noop"],
    ]
    assert all(one["ended"] == 3 for group in results for one in group["operators"])
    same = results[0]["differences"][0]["total_reward"]
    # All the same: there is no interval.
    assert (same["mean"], same["low"], same["high"], same["n"]) == (0.0, None, None, 3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_seeds_give_the_same_twice_and_intervals_as_students(tmp_path):
    # Its import takes longer than all others here.
    from scipy.stats import ttest_1samp

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Scripts of runs have to be below the current folder. The runs are trained first, as they are not there.
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    first, second = (compare(tmp_path, "--set", f"port={port}") for _ in range(2))
    operators = {}
    for group in json.loads((first / "results.json").read_text())["results"]:
        operators |= {one["operator_id"]: one for one in group["operators"]}
    assert operators["trained"]["success"]["mean"] > 0.9 > operators["random"]["success"]["mean"]
    assert operators["room-trained"]["success"]["mean"] == 1.0
    assert without_names(telemetry(first, "trained", "steps")) == without_names(
        telemetry(first, "served", "steps")
    )
    for name, found in operators.items():
        for kind in ("steps", "episodes"):
            assert telemetry(first, name, kind) == telemetry(second, name, kind)
        rewards = [episode["total_reward"] for episode in telemetry(first, name, "episodes")]
        assert len(rewards) == 50
        reward = found["total_reward"]
        assert reward["mean"] == pytest.approx(np.mean(rewards))
        if len(set(rewards)) > 1:
            expected = ttest_1samp(rewards, 0).confidence_interval()
            width = expected.high - expected.low
            assert (reward["low"], reward["high"]) == pytest.approx(
                tuple(expected), abs=0.05 * width
            )
