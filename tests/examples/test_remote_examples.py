from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.distributed.remote import RemotePolicy
from parllel.policies import PolicyAgent, load_policy, policy_of
from parllel.runs import RunFolder
from parllel.samplers import BasicSampler
from parllel.system.processes.process_table import descendants, process_runs
from parllel_patterns import allocate_samples, build_cages

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
LONG_S = 60.0
CONFIGURATION = json.dumps({"agentTimeout": 300, "actTimeout": 60})
UNSOLVED = 1


@contextmanager
def server(agent, environment):
    """Serve an agent, and yield the URL."""
    command = [sys.executable, "-m", "parllel", "remote", "serve", "--port", "0"]
    command += ["--agent", str(agent), "--environment", environment]
    command += ["--configuration", CONFIGURATION]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        yield re.fullmatch(r"serving on (http://\S+)\n", said)[1]
        below = [entry.pid for entry in descendants(process.pid)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG_S) == 0
        # Its fork server notices that by itself, which takes a busy machine a while.
        deadline = time.monotonic() + LONG_S
        while any(map(process_runs, below)) and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_every_script_is_run_here():
    """Here `reaction.py` is an agent that is served."""
    scripts = {path.name for path in (EXAMPLES / "remote").rglob("*.py")}
    assert scripts == {"clone.py", "play.py", "reaction.py", "train_against.py"}


def trained(example, folder, *arguments, status=UNSOLVED):
    """Train CartPole, and return the folder of the run."""
    example("cartpole/train_ppo.py", *arguments, "--runs", "runs", folder=folder, status=status)
    return next((folder / "runs").iterdir())


@pytest.fixture(scope="module")
def run(example, tmp_path_factory):
    """A run that has learned a little: its episodes have different lengths."""
    return trained(example, tmp_path_factory.mktemp("run"), "--n-steps", "10240", "--T", "64")


@pytest.fixture(scope="module")
def url(run):
    with server(run, "gymnasium/CartPole-v1") as found:
        yield found


def batches(policy, n_episodes, B=16):
    """Return what a policy does in a sampler for that many episodes, and their returns."""
    spec, taken, returns = BatchSpec(64, B), [], []
    cages = build_cages(partial(gym.make, "CartPole-v1"), B, seeds=Seeds(0))
    handler = NumpyHandler(PolicyAgent(policy))
    samples = allocate_samples(cages, spec, handler)
    with BasicSampler(spec, cages, handler, samples) as sampler:
        while len(returns) < n_episodes:
            batch, episodes = sampler.collect_batch(0)
            taken.append((np.array(batch.agent.action), np.array(batch.env.observation)))
            returns += [episode.return_ for episode in episodes]
    return taken, returns


@pytest.mark.parametrize("n_episodes", [12, pytest.param(100, marks=pytest.mark.soak)])
def test_a_served_run_plays_as_its_evaluation_does(example, run, url, n_episodes):
    with gym.make("CartPole-v1") as env:
        spaces = env.observation_space, env.action_space
    policy = policy_of(url, *spaces)
    assert isinstance(policy, RemotePolicy)
    taken, returns = batches(policy, n_episodes)
    # As many environments as the evaluation of the run has, computed as they come: with its very bits.
    expected, expected_returns = batches(load_policy(run, rows=None), n_episodes)
    assert returns == expected_returns
    assert len(set(returns)) > 5
    for one, other in zip(taken, expected, strict=True):
        for array, expected_array in zip(one, other, strict=True):
            np.testing.assert_array_equal(array, expected_array)
    said = example("remote/play.py", url, "--n-episodes", str(n_episodes), folder=run)
    mean = sum(returns[:n_episodes]) / n_episodes
    assert said == f"mean return {mean:.2f} of {n_episodes} episodes\n"


def test_a_served_run_is_cloned(example, url, tmp_path):
    budget = ["--n-steps", "512", "--T", "16", "--log-interval-steps", "256"]
    said = example("remote/clone.py", "--expert", url, *budget, folder=tmp_path, status=UNSOLVED)
    assert "Finished after 512 environment steps" in said
    folder = RunFolder.open(tmp_path / "runs" / "clone" / "clone-seed0")
    assert folder.read_record().outcome["elapsed_steps"] == 512


def test_a_served_agent_is_an_opponent(example, tmp_path):
    with server(EXAMPLES / "remote" / "reaction.py", "rps") as opponent:
        budget = ["--n-steps", "256", "--T", "8", "--B", "4", "--log-interval-steps", "128"]
        budget += ["--n-eval-episodes", "2"]
        said = example("remote/train_against.py", "--opponent", opponent, *budget, folder=tmp_path)
    assert "Finished after 256 environment steps" in said


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_served_runs_are_cloned_into_smaller_policies_that_solve(example, tmp_path):
    run = trained(example, tmp_path, status=0)
    with server(run, "gymnasium/CartPole-v1") as url:
        for seed in range(3):
            # Its exit status says that an evaluation had a mean return of 475, of 500 at most.
            said = example("remote/clone.py", "--expert", url, "--seed", seed, folder=tmp_path)
            print(said.splitlines()[-2])
            steps = int(re.search(r"Solved after ([\d,]+) environment", said)[1].replace(",", ""))
            assert steps <= 100_000
