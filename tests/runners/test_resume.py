from __future__ import annotations

from functools import partial

import gymnasium as gym
import pytest
import torch
from stepped_traj_info import SteppedTrajInfo

from parllel import BatchSpec, Seeds
from parllel.cages import ProcessCage, SynchronizedProcessCage, TrajInfo, VectorizedCage
from parllel.runners import OnPolicyRunner, checkpointing
from parllel.samplers import BasicSampler, EvalSampler, RecurrentSampler, RolloutSampler
from parllel.testing.resume_contract import ResumeContract
from parllel.torch import (
    PPO,
    CategoricalHead,
    CategoricalPgAgent,
    PgModel,
    RecurrentPgAgent,
    RecurrentPgModel,
    RecurrentPPO,
    SmallPolicyHandler,
    TorchHandler,
)
from parllel.torch.distributions.categorical import Categorical
from parllel.transforms import (
    EstimateAdvantage,
    NormalizeAdvantage,
    NormalizeObservations,
    NormalizeRewards,
)
from parllel_patterns import PPO_DEFAULTS, allocate_eval_samples, allocate_samples

BATCH = BatchSpec(10, 2)
SEED = 3


def make_single(cls, seeds, automatic, traj_info):
    make = partial(gym.make, "CartPole-v1", max_episode_steps=12)
    options = {"reset_automatically": automatic, "traj_info": traj_info}
    return [
        cls(make, seed=seed, index=i, **options)
        for i, seed in enumerate(seeds.spawn("environments", BATCH.B))
    ]


def make_together(cls, seeds, automatic, traj_info, **options):
    make = partial(gym.make, "CartPole-v1", max_episode_steps=12)
    return [
        cls(
            [make] * BATCH.B,
            seeds=seeds.spawn("environments", BATCH.B),
            reset_automatically=automatic,
            traj_info=traj_info,
            **options,
        )
    ]


CAGES = {
    "vectorized": partial(make_together, VectorizedCage),
    "processes": partial(make_single, ProcessCage),
    "synchronized": partial(make_together, SynchronizedProcessCage, n_workers=1, participate=True),
}


class RunOnCages(ResumeContract):
    """Runs that differ in their cages."""

    traj_info = partial(TrajInfo, discount=0.9)

    @pytest.fixture(autouse=True)
    def one_thread(self):
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)

    @pytest.fixture(autouse=True)
    def no_pictures(self, monkeypatch):
        # They take longer than all batches, and are no part of what is compared.
        monkeypatch.setattr(checkpointing, "plot_learning_curve", lambda *arguments: None)

    @pytest.fixture(autouse=True)
    def cages(self, request):
        self.make_cages = CAGES[request.param]

    def finish(self, stack, folder, callbacks, parts, eval_step_transforms=()):
        """Return a runner of what both kinds of runs have in common."""
        seeds, sampler, handler, algorithm = parts
        eval_cages = [
            VectorizedCage(
                [partial(gym.make, "CartPole-v1", max_episode_steps=15)] * 2,
                seeds=seeds.spawn("evaluation", 2),
            )
        ]
        stack.callback(eval_cages[0].close)
        eval_samples = allocate_eval_samples(eval_cages)
        return OnPolicyRunner(
            BATCH,
            sampler,
            algorithm,
            n_steps=BATCH.size * 6,
            logger=self.make_logger(folder),
            log_interval_steps=BATCH.size * 2,
            eval_sampler=EvalSampler(eval_cages, handler, eval_samples, 3, eval_step_transforms),
            state_parts={"agent": handler.agent},
            folder=folder,
            seeds=seeds,
            callbacks=callbacks,
            checkpoint_interval_s=0.0,
        )


@pytest.mark.parametrize("cages", ["vectorized", "synchronized"], indirect=True)
@pytest.mark.few(1)
class TestPPO(RunOnCages):
    def make_runner(self, stack, folder, callbacks):
        seeds = Seeds(SEED)
        cages = self.make_cages(seeds, True, self.traj_info)
        for cage in cages:
            stack.callback(cage.close)
        model = PgModel((4,), CategoricalHead(2), [16], seed=seeds.integer("model"))
        handler = TorchHandler(CategoricalPgAgent(model, 2, seed=seeds.integer("agent")))
        step_transforms = [NormalizeObservations()]
        batch_transforms = [
            NormalizeRewards(0.9),
            EstimateAdvantage(0.9, 0.9, reward="env.normalized_reward"),
            NormalizeAdvantage(),
        ]
        transforms = [*step_transforms, *batch_transforms]
        samples = allocate_samples(cages, BATCH, handler, transforms)
        sampler = BasicSampler(
            BATCH,
            cages,
            handler,
            samples,
            step_transforms,
            batch_transforms,
            decorrelation_steps=9,
            decorrelation_seed=seeds.sequence("decorrelation"),
        )
        settings = {**PPO_DEFAULTS, "learning_rate_anneal_steps": BATCH.size * 6}
        algorithm = PPO(handler.agent, **settings, seed=seeds.integer("algorithm"))
        parts = seeds, sampler, handler, algorithm
        return self.finish(stack, folder, callbacks, parts, step_transforms)


@pytest.mark.parametrize("cages", ["vectorized", "processes"], indirect=True)
@pytest.mark.few(1)
class TestRecurrentPPO(RunOnCages):
    traj_info = SteppedTrajInfo

    def make_runner(self, stack, folder, callbacks):
        seeds = Seeds(SEED)
        cages = self.make_cages(seeds, False, self.traj_info)
        for cage in cages:
            stack.callback(cage.close)
        model = RecurrentPgModel(
            (4,),
            CategoricalHead(2),
            [16],
            8,
            cell="lstm",
            prev_action=True,
            seed=seeds.integer("model"),
        )
        agent = RecurrentPgAgent(model, Categorical(2), prev_action=0, seed=seeds.integer("agent"))
        handler = TorchHandler(agent)
        batch_transforms = [
            NormalizeRewards(0.9),
            EstimateAdvantage(0.9, 0.9, reward="env.normalized_reward"),
            NormalizeAdvantage(),
        ]
        samples = allocate_samples(cages, BATCH, handler, batch_transforms)
        sampler = RecurrentSampler(
            BATCH, cages, handler, samples, batch_transforms=batch_transforms
        )
        settings = {**PPO_DEFAULTS, "minibatches": 2}
        algorithm = RecurrentPPO(agent, **settings, seed=seeds.integer("algorithm"))
        return self.finish(stack, folder, callbacks, (seeds, sampler, handler, algorithm))


@pytest.mark.parametrize("cages", ["synchronized"], indirect=True)
class TestSmallPolicies(RunOnCages):
    def make_runner(self, stack, folder, callbacks):
        seeds = Seeds(SEED)
        cages = self.make_cages(seeds, True, self.traj_info)
        stack.callback(cages[0].close)
        model = PgModel((4,), CategoricalHead(2), [16], seed=seeds.integer("model"))
        handler = SmallPolicyHandler(CategoricalPgAgent(model, 2, seed=seeds.integer("agent")))
        transforms = [EstimateAdvantage(0.9, 0.9), NormalizeAdvantage()]
        samples = allocate_samples(cages, BATCH, handler, transforms, noise=True)
        cages[0].set_policy(handler.worker_policy())
        sampler = RolloutSampler(BATCH, cages, handler, samples, batch_transforms=transforms)
        stack.callback(sampler.close)
        algorithm = PPO(handler.agent, **PPO_DEFAULTS, seed=seeds.integer("algorithm"))
        return self.finish(stack, folder, callbacks, (seeds, sampler, handler, algorithm))
