"""Runs of SAC and TD3: resumed, and loaded as policies."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from off_policy_setup import SAC_SETTINGS, TD3_SETTINGS

from parllel import BatchSpec, Seeds, load_policy
from parllel.logging import Logger
from parllel.replays import UniformReplay
from parllel.runners import OffPolicyRunner, checkpointing, train
from parllel.testing.resume_contract import ResumeContract
from parllel.torch import SAC, TD3, TorchHandler, sac_agent_for, td3_agent_for
from parllel.transforms import FinalObservations
from parllel_patterns import build_cages, build_eval_sampler
from parllel_patterns import build_sampler as make_sampler

BATCH = BatchSpec(4, 2)
MAKE = partial(gym.make, "Pendulum-v1", max_episode_steps=11)


def build(kind, stack, folder, console=None, callbacks=(), logger=None):
    """Build a small run of an algorithm in the order of the data flow."""
    seeds = Seeds(3)
    cages = build_cages(MAKE, 2, seeds=seeds, stack=stack)
    make_agent, make, settings = {
        "sac": (sac_agent_for, SAC, SAC_SETTINGS),
        "td3": (td3_agent_for, TD3, TD3_SETTINGS),
    }[kind]
    agent = make_agent(cages[0].spaces, seeds=seeds, hidden_sizes=(8, 8))
    sampler = make_sampler(
        BATCH, cages, TorchHandler(agent), [], [FinalObservations()], n_batches=6
    )
    stack.callback(sampler.close)
    eval_cages = build_cages(MAKE, 2, seeds=seeds, name="evaluation", stack=stack)
    replay = UniformReplay(
        sampler.samples, batch_size=8, discount=0.9, seed=seeds.integer("replay")
    )
    return OffPolicyRunner(
        BATCH,
        sampler,
        make(agent, **settings),
        replay,
        replay_ratio=0.7,
        learning_starts=10,
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


@pytest.mark.parametrize("kind", ["sac", "td3"])
class TestResuming(ResumeContract):
    @pytest.fixture(autouse=True)
    def parts(self, kind):
        self.kind = kind

    def make_runner(self, stack, folder, callbacks):
        return build(self.kind, stack, folder, None, callbacks, self.make_logger(folder))


def build_sac(config, stack, folder, console):
    return build("sac", stack, folder, console)


def test_policies_are_loaded_without_the_replay(tmp_path, monkeypatch):
    _, folder = train(build_sac, {}, base=tmp_path, name="run")
    _, state = folder.checkpoints.load_newest()
    assert state["parts"]["replay"]

    def refuse(self, state):
        raise AssertionError("nothing learns here")

    monkeypatch.setattr(UniformReplay, "load_state", refuse)
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with load_policy(folder.path) as policy:
        actions = np.array(policy.act(observations, range(5)))
        again = np.array(policy.act(observations, range(5)))
    assert actions.shape == (5, 1)
    assert np.array_equal(actions, again)
    assert (np.abs(actions) <= 2).all()
