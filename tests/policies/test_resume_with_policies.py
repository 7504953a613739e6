"""Runs in which policies are agents and opponents go on exactly, with what these remember and draw."""

from __future__ import annotations

import numpy as np
import pytest

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.algos import Algorithm
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.policies import OpponentEnv, PolicyAgent
from parllel.runners import OnPolicyRunner, checkpointing
from parllel.samplers import EvalSampler, RecurrentSampler
from parllel.testing.dummy_policies import FrequencyPolicy
from parllel.testing.resume_contract import ResumeContract
from parllel.testing.rock_paper_scissors_env import RockPaperScissorsEnv
from parllel_patterns import allocate_eval_samples, allocate_samples

BATCH = BatchSpec(10, 2)


def make_env():
    blue = FrequencyPolicy(drawn=0.5)
    return OpponentEnv(RockPaperScissorsEnv((4, 14)), "red", {"blue": blue})


class Watching(Algorithm):
    """Learn nothing, and log what was played."""

    def optimize_agent(self, elapsed_steps, samples):
        valid = np.asarray(samples.env.valid)
        return {
            "moves": np.asarray(samples.agent.action)[valid],
            "rewards": np.asarray(samples.env.reward)[valid],
        }

    def state(self):
        return {}

    def load_state(self, state):
        assert state == {}


class TestPolicies(ResumeContract):
    @pytest.fixture(autouse=True)
    def no_pictures(self, monkeypatch):
        # They take longer than all batches, and are no part of what is compared.
        monkeypatch.setattr(checkpointing, "plot_learning_curve", lambda *arguments: None)

    def make_runner(self, stack, folder, callbacks):
        seeds = Seeds(3)
        cage = SynchronizedProcessCage(
            [make_env] * BATCH.B,
            n_workers=1,
            start_method="fork",
            participate=True,
            seeds=seeds.spawn("environments", BATCH.B),
            reset_automatically=False,
        )
        stack.callback(cage.close)
        handler = NumpyHandler(PolicyAgent(FrequencyPolicy(), seeds.integer("agent")))
        samples = allocate_samples([cage], BATCH, handler)
        eval_cage = VectorizedCage([make_env] * 2, seeds=seeds.spawn("evaluation", 2))
        stack.callback(eval_cage.close)
        eval_samples = allocate_eval_samples([eval_cage])
        return OnPolicyRunner(
            BATCH,
            RecurrentSampler(BATCH, [cage], handler, samples),
            Watching(),
            n_steps=BATCH.size * 6,
            logger=self.make_logger(folder),
            log_interval_steps=BATCH.size * 2,
            eval_sampler=EvalSampler([eval_cage], handler, eval_samples, 3),
            state_parts={"agent": handler.agent},
            folder=folder,
            seeds=seeds,
            callbacks=callbacks,
            checkpoint_interval_s=0.0,
        )
