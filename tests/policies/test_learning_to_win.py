"""PPO learns to beat a fixed opponent, which beats those who have not learned."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
import torch
from winning_run import Config, build

from parllel.runners import checkpointing
from parllel.runs import RunFolder


@pytest.fixture(autouse=True)
def one_thread():
    """Keep a network this small from waiting for a second thread on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Leave out what takes longer than to learn."""
    monkeypatch.setattr(checkpointing, "plot_learning_curve", lambda *arguments: None)


def standard_errors(sampler):
    """Return by how many of its standard errors the mean return of an evaluation is above 0."""
    _, trajs = sampler.collect_batch(0)
    returns = np.array([traj.return_ for traj in trajs])
    return returns.mean() / (returns.std(ddof=1) / np.sqrt(len(returns)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.few(1)
def test_ppo_learns_to_beat_an_opponent(seed, tmp_path):
    with ExitStack() as stack:
        runner = build(Config(seed), stack, RunFolder(tmp_path), None)
        # Those who can be foreseen lose, so that winning has to be learned.
        assert standard_errors(runner.eval_sampler) < -5
        runner.run()
        assert standard_errors(runner.eval_sampler) > 5
