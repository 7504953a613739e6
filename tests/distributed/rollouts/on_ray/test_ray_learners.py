"""Learners in actors against learners in processes and against one; and what happens when one is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cloudpickle
import gymnasium as gym
import numpy as np
import psutil
import pytest
import ray
from gymnasium.envs.registration import EnvSpec
from learner_runs import Config, MadeUpEnv, build
from ray_setup import gone, wait_until

from parllel.cages.env_registry import pack_registry
from parllel.distributed.rollouts.on_ray import RayLearners, WorkerOptions, learner_actor
from parllel.distributed.rollouts.on_ray.learner_actor import LearnerActor
from parllel.distributed.rollouts.on_ray.packed_build import pack_build
from parllel.distributed.rollouts.on_ray.ray_connection import RayConnection
from parllel.distributed.rollouts.on_ray.ray_episode_statistics import StatisticsActor
from parllel.errors import ClosedError, WorkerDiedError, WorkerTimeoutError
from parllel.runners import resume, train
from parllel.system.processes.exceptions import raise_packed
from parllel.testing.resume_contract import assert_equal_states
from parllel.torch.gloo_exchange import GlooExchange
from parllel.torch.learner_process import Place

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.usefixtures("ray_here", "open_fonts", "ended_actors"),
]
FOLDER = Path(__file__).parent
ON_RAY = Config(on_ray=True)


def learner_actors():
    """Return the processes of learners that Ray has started for this process."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.cmdline()[0].startswith("ray::LearnerActor"):
                found.append(child)
        except (psutil.Error, IndexError):
            continue
    return found


@pytest.fixture(autouse=True, scope="module")
def opened():
    """A pipe that PyTorch opens once, and keeps."""
    GlooExchange(1, "127.0.0.1").close()


@pytest.fixture
def ended_actors():
    """After the test, no learner is left, nothing that one reserved, and no shared memory of PyTorch's."""
    segments = set(os.listdir("/dev/shm"))
    yield
    wait_until(lambda: not learner_actors(), "the end of the learners")
    wait_until(lambda: ray.available_resources().get("CPU") == 2, "two free CPUs")
    assert not [name for name in set(os.listdir("/dev/shm")) - segments if "torch" in name]


def run(config, base):
    """Train; return the last checkpoint's state and the rows of the log."""
    _, folder = train(build, config, base=base)
    assert not (folder.path / "learners").exists()
    lines = (folder.path / "progress.jsonl").read_text().splitlines()
    return state_of(folder), [row for row in map(json.loads, lines) if "step" in row]


def state_of(folder):
    return folder.checkpoints.load_newest(warn=lambda text: None)[1]


def exact(state):
    """Return the part of a state that does not depend on time, or on where a run was interrupted."""
    row = {
        k: v for k, v in state["row"].items() if k not in ("algorithm", "training", "evaluation")
    }
    return {**{k: v for k, v in state.items() if k not in ("time", "callbacks")}, "row": row}


def test_two_equal_one_with_the_whole_batch_and_two_processes(tmp_path):
    # 60 updates.
    actors, rows = run(ON_RAY, tmp_path)
    for other in (replace(ON_RAY, learners=1), Config()):
        expected, expected_rows = run(other, tmp_path)
        for name, weights in expected["parts"]["agent"]["model"].items():
            found = actors["parts"]["agent"]["model"][name]
            np.testing.assert_allclose(found, weights, rtol=0, atol=1e-6, err_msg=name)
        assert len(rows) == len(expected_rows) > 4
        for expected_row, row in zip(expected_rows, rows, strict=True):
            for key, value in expected_row.items():
                if key.startswith(("algorithm/", "training/", "evaluation/", "sampler/", "step")):
                    np.testing.assert_allclose(row[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


def test_a_killed_learner_ends_the_run_which_resumes_to_the_same_numbers(tmp_path):
    config = replace(ON_RAY, real=True, fault="kill", during="learn")
    expected, _ = run(replace(config, fault=""), tmp_path)
    with pytest.raises(
        WorkerDiedError, match=r"^learner 1: process \d+ on [\d.]+: learn: its actor died: .*died"
    ):
        train(build, config, base=tmp_path, name="killed")
    assert not (tmp_path / "killed" / "learners").exists()
    _, folder = resume(tmp_path / "killed", changes={"fault": ""})
    assert_equal_states(exact(state_of(folder)), exact(expected))


def test_an_exception_of_a_learner_is_raised_by_the_first(tmp_path):
    with pytest.raises(ArithmeticError, match="no luck today") as caught:
        train(build, replace(ON_RAY, fault="raise", during="learn"), base=tmp_path, name="failed")
    (note,) = [note for note in caught.value.__notes__ if "learner 1" in note]
    assert re.search(r"learner 1: process \d+ on [\d.]+, during learn", note)
    assert not (tmp_path / "failed" / "learners").exists()


def test_environments_that_are_registered_here_are_registered_there(tmp_path, monkeypatch):
    spec = EnvSpec("MadeUp-v0", lambda **options: MadeUpEnv(**options), disable_env_checker=True)
    monkeypatch.setitem(gym.registry, spec.id, spec)
    run(replace(ON_RAY, registered="MadeUp-v0", n_steps=64), tmp_path)


def test_what_cannot_work_is_refused_at_the_start(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"RayLearners: .* 2 learners can share equally, got B=5"):
        train(build, replace(ON_RAY, B=5), base=tmp_path)
    with pytest.raises(
        ValueError,
        match=r"RayLearners: n: expected at most 3 \(this process and 2 actors\), for 1 CPU and 0 GPU each "
        "on nodes that have 2 CPU and 0 GPU, got 4; lower the amounts",
    ):
        RayLearners(4, build, ON_RAY)
    with pytest.raises(
        ValueError, match=r"at most 1 \(this process and 0 actors\), for 0 CPU and 1"
    ):
        RayLearners(2, build, ON_RAY, options=WorkerOptions(cpus=0, gpus=1))
    with pytest.raises(TypeError, match=r"RayLearners: n: expected an int, got 2\.0"):
        RayLearners(2.0, build, ON_RAY)
    options = WorkerOptions(cpus=2, start_timeout_s=1.0)
    with RayLearners(2, build, ON_RAY, options=options) as learners:
        holder = ray.remote(StatisticsActor).options(num_cpus=0.5).remote(1)
        ray.get(holder.drain.remote())
        with pytest.raises(
            WorkerTimeoutError,
            match=r"RayLearners: learner 1: no node had 2 CPU and 0 GPU for it within 1 s; .* 1\.5 CPU",
        ):
            learners.start(None)
        with pytest.raises(ClosedError, match="RayLearners: used after close"):
            learners.start(None)
        ray.kill(holder)
    with RayLearners(2, build, ON_RAY) as learners:
        monkeypatch.setattr(RayConnection, "holds", False)
        with pytest.raises(WorkerDiedError, match="Ray was shut down together with its actors"):
            learners.start(None)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ConnectionError, match="RayLearners: expected this process to be connected"):
        RayLearners(2, build, ON_RAY)


def test_without_the_disk_of_the_first_one_a_learner_writes_to_a_temporary_folder(
    tmp_path, monkeypatch
):
    def build_nothing(config, stack, folder, console):
        raise ArithmeticError(str(folder.path))

    monkeypatch.setattr(learner_actor, "end_with_raylet", lambda: None)
    monkeypatch.setattr("parllel.torch.learner_process._place", None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = Place(1, "/nowhere", 1)
    packed = pack_build((build_nothing, None))
    actor = LearnerActor(2, place, pack_registry(), packed, ("127.0.0.1", 1))
    reply = actor.answer(cloudpickle.dumps(("build", ())))
    with pytest.raises(ArithmeticError, match=rf"^{tmp_path}/parllel-learners-\w+/learner-1"):
        raise_packed(reply[1:], "the actor")
    assert len([*tmp_path.iterdir()]) == 1
    assert actor.answer(cloudpickle.dumps(("close", ())))[:1] == learner_actor.ANSWER
    assert not [*tmp_path.iterdir()]


def script(name, *arguments):
    """Start a script that finds this parllel and what tests share."""
    path = [str(FOLDER), str(FOLDER.parents[2] / "support"), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, str(FOLDER / name), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_others_end_with_the_first(tmp_path):
    address = ray.get_runtime_context().gcs_address
    with script("learner_driver.py", address, tmp_path) as first:
        actors = wait_until(learner_actors, "a learner")
        _, said = first.communicate(timeout=120)
    assert first.returncode == -signal.SIGKILL, said
    wait_until(lambda: all(map(gone, actors)), "the end of the other learner")


def test_two_nodes_of_which_one_is_lost(tmp_path):
    with script("learner_nodes.py", tmp_path) as program:
        said, errors = program.communicate(timeout=280)
    assert program.returncode == 0, errors
    found = json.loads(said)
    assert re.match(r"WorkerDiedError: learner 1: process \d+ on 127\.0\.0\.\d+: ", found["error"])
    assert found["seconds"] < 60
