"""Runs of DQN and R2D1: resumed, and loaded as policies."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from parllel import BatchSpec, Seeds, load_policy
from parllel.logging import Logger
from parllel.replays import PrioritizedReplay, SequenceReplay
from parllel.runners import OffPolicyRunner, checkpointing, train
from parllel.testing.resume_contract import ResumeContract
from parllel.torch import (
    DQN,
    R2D1,
    RecurrentQAgent,
    RecurrentQModel,
    TorchHandler,
    q_agent_for,
)
from parllel.transforms import FinalObservations
from parllel_patterns import DqnParameters, R2d1Parameters, build_cages, build_eval_sampler
from parllel_patterns import build_sampler as make_sampler

BATCH = BatchSpec(8, 2)
MAKE = partial(gym.make, "CartPole-v1", max_episode_steps=15)


def build(kind, stack, folder, console=None, callbacks=(), logger=None):
    """Build a small run of an algorithm in the order of the data flow."""
    seeds, recurrent = Seeds(3), kind == "r2d1"
    cages = build_cages(MAKE, 2, seeds=seeds, reset_automatically=not recurrent, stack=stack)
    settings = {"target_update_interval": 3, "epsilon_anneal_steps": 64, "learning_rate": 1e-2}
    if recurrent:
        model = RecurrentQModel((4,), 2, (8,), 8, cell="lstm", prev_action=True, seed=1)
        agent = RecurrentQAgent(model, 2, prev_action=True, seed=2)
        algorithm = R2D1(agent, **R2d1Parameters(**settings))
        replay = partial(SequenceReplay, warm_up=2, length=5, n_step=2, alpha=0.9)
    else:
        agent = q_agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(8,), dueling=True)
        algorithm = DQN(agent, **DqnParameters(**settings))
        replay = partial(PrioritizedReplay, n_step=2, beta_draws=50)
    sampler = make_sampler(
        BATCH,
        cages,
        TorchHandler(agent),
        batch_transforms=[FinalObservations()],
        n_batches=6,
    )
    stack.callback(sampler.close)
    eval_cages = build_cages(MAKE, 2, seeds=seeds, name="evaluation", stack=stack)
    return OffPolicyRunner(
        BATCH,
        sampler,
        algorithm,
        replay(sampler.samples, batch_size=8, discount=0.9, seed=seeds.integer("replay")),
        replay_ratio=0.3,
        learning_starts=40,
        n_steps=BATCH.size * 8,
        logger=logger or stack.enter_context(Logger([])),
        log_interval_steps=BATCH.size * 2,
        eval_sampler=build_eval_sampler(eval_cages, sampler, 2),
        folder=folder,
        seeds=seeds,
        console=console,
        callbacks=callbacks,
        checkpoint_interval_s=0.0,
    )


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    # They take longer than all batches, and are no part of what is compared.
    monkeypatch.setattr(checkpointing, "plot_learning_curve", lambda *arguments: None)


@pytest.mark.parametrize("kind", ["dqn", "r2d1"])
class TestResuming(ResumeContract):
    @pytest.fixture(autouse=True)
    def parts(self, kind):
        self.kind = kind

    def make_runner(self, stack, folder, callbacks):
        return build(self.kind, stack, folder, None, callbacks, self.make_logger(folder))


def build_dqn(config, stack, folder, console):
    return build("dqn", stack, folder, console)


def build_r2d1(config, stack, folder, console):
    return build("r2d1", stack, folder, console)


@pytest.mark.parametrize("build", [build_dqn, build_r2d1])
def test_trained_policy_acts_greedily(build, tmp_path):
    _, folder = train(build, {}, base=tmp_path, name="run")
    observations = np.random.default_rng(0).normal(size=(5, 2, 4)).astype(np.float32)
    with load_policy(folder.path) as policy:
        runs = []
        for _ in range(2):
            policy.reset()
            runs.append([np.array(policy.act(one, range(2))) for one in observations])
        # The agent of the run explores; a greedy policy does the same again.
        assert np.array_equal(*runs)
        assert set(np.ravel(runs)) <= {0, 1}
