"""Runs that learn from fragments with normalised observations, and what is done with their folders."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from far_cart_run import Config, build, far_cart

from parllel.cli import main
from parllel.policies import load_policy
from parllel.runners import resume, train
from parllel.runs import RunFolder

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def one_thread():
    """Let PyTorch use one thread, as others would wait for each other beside workers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def best_evaluation(folder):
    with open(folder.path / "progress.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return max(
        float(row["evaluation/return/mean"]) for row in rows if row["evaluation/return/mean"]
    )


@pytest.mark.parametrize(
    ("schedule", "normalize"), [("rows", True), ("ready", True), ("rows", False)]
)
@pytest.mark.few(1)
def test_normalized_observations_are_learned_from(schedule, normalize, tmp_path, open_fonts):
    config = Config(schedule=schedule, normalize=normalize)
    _, folder = train(build, config, base=tmp_path, name="run")
    best = best_evaluation(folder)
    # A pole that is pushed to one side falls in about 9 steps. Without statistics nothing else is learned.
    assert best > 40 if normalize else best < 20


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import far_cart_run, torch
from parllel.runners import train

torch.set_num_threads(1)

class Killed(far_cart_run.PPO):
    def optimize_agent(self, elapsed_steps, samples):
        if elapsed_steps >= 6000:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().optimize_agent(elapsed_steps, samples)

far_cart_run.PPO = Killed
train(far_cart_run.build, far_cart_run.Config(n_steps=8192), base=sys.argv[2], name="killed")
"""


def statistics_of(state):
    """Return count, mean and variance in a checkpoint."""
    moments = state["parts"]["sampler"]["transforms"][0]["env.observation"]
    return moments["count"], np.asarray(moments["mean"]), np.asarray(moments["var"])


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Return the path of a run that was killed at step 6,144 or later, after a checkpoint."""
    base = tmp_path_factory.mktemp("killed")
    done = subprocess.run([sys.executable, "-c", KILLED, str(HERE), str(base)], check=False)
    assert done.returncode == -signal.SIGKILL
    return base / "killed"


def test_a_killed_run_goes_on_with_its_statistics(killed, open_fonts):
    folder = RunFolder.open(killed)
    _, state = folder.checkpoints.load_newest()
    reached, version = state["elapsed_steps"], state["parts"]["sampler"]["version"]
    assert 0 < reached < 6144
    count, *_ = statistics_of(state)
    assert count == reached
    resume(killed, build=build, config_class=Config)
    _, state = folder.checkpoints.load_newest()
    count, mean, _ = statistics_of(state)
    assert count == state["elapsed_steps"] == 8192
    assert state["parts"]["sampler"]["version"] > version
    np.testing.assert_allclose(mean, 7, atol=0.2)


def test_a_policy_sees_by_the_statistics_of_the_trainer(killed, capsys, monkeypatch):
    pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    _, state = RunFolder.open(killed).checkpoints.load_newest()
    _, mean, var = statistics_of(state)
    raw = np.float32([[7.1, 7.0, 6.9, 7.02], [6.9, 6.99, 7.01, 7.05]])
    expected = np.clip((raw - mean) / np.sqrt(var + 1e-8), -10, 10)
    env = far_cart()
    with load_policy(killed, build=build, config_class=Config) as policy:
        np.testing.assert_allclose(policy.as_seen(raw), expected, rtol=1e-3, atol=1e-4)
        total, done = 0.0, False
        observation, _ = env.reset(seed=3)
        while not done:
            action = policy.act(observation[np.newaxis], [0])
            observation, reward, terminated, truncated, _ = env.step(int(action[0]))
            total, done = total + float(reward), terminated or truncated
    env.close()
    # What the command shows is this policy's.
    assert main(["show", str(killed), "--trust", "--episodes", "1", "--seed", "3"]) == 0
    assert f"seed 3: return {total:.2f} in" in capsys.readouterr().out
