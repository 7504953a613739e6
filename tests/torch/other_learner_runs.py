"""Runs of several learners of SAC and TD3, and of PPO with an asynchronous sampler; see learner_runs."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from learner_runs import Fault, MadeUpActions, MadeUpEnv

from parllel import BatchSpec, Seeds
from parllel.algos import TransformingAlgorithm
from parllel.cages import VectorizedCage
from parllel.logging import JsonlWriter, Logger
from parllel.replays import PrioritizedReplay, UniformReplay
from parllel.runners import AsynchronousRunner, OffPolicyRunner
from parllel.samplers import AsynchronousSampler, BasicSampler
from parllel.torch import (
    PPO,
    SAC,
    TD3,
    Learners,
    TorchHandler,
    agent_for,
    sac_agent_for,
    td3_agent_for,
)
from parllel.transforms import EstimateAdvantage, FinalObservations, NormalizeAdvantage
from parllel_patterns import allocate_samples, build_sampler


@dataclass(frozen=True)
class Config:
    """Settings of a run.

    Attributes:
        made_up: whether what the replay draws is made up, so that it does not depend on the learners.
        fault, during, who: see `Fault`.
        mistake: "prioritized", "own update", "other batch size", "mixing".
    """

    learners: int = 2
    seed: int = 0
    T: int = 4
    B: int = 4
    n_steps: int = 160
    kind: str = "sac"
    update: str = "auto"
    made_up: bool = False
    batch_size: int = 8
    fault: str = ""
    during: str = ""
    who: int = 1
    mistake: str = ""


class FaultyReplay(UniformReplay):
    """Meets its fault when it draws; may draw what is made up."""

    fault: Fault
    first = n_draws = 0
    made_up = False

    def sample(self) -> Any:
        batch = super().sample()
        self.n_draws += 1
        self.fault.see("learn", self.n_draws)
        if self.made_up:
            item = 1.0 + self.first + np.arange(self.batch_size)
            x = np.sin(0.37 * self.n_draws * item).astype(np.float32)
            batch.observation[:] = np.cos(x[:, np.newaxis] * np.arange(1, 5))
            batch.next_observation[:] = np.cos(x[:, np.newaxis] * np.arange(2, 6))
            batch.action[:] = np.stack([x, -x], axis=-1) * 0.9
            batch.reward[:] = 1 - x
            batch.discount[:] = np.where(x > 0.9, 0.0, 0.9)
        return batch


class OwnUpdate(SAC):
    def policy_loss(self, batch: Any) -> Any:
        return super().policy_loss(batch)


def environments(config: Config, rank: int, B: int, fault: Fault) -> list[VectorizedCage]:
    first = rank * B
    real = not config.made_up
    makes = [partial(MadeUpEnv, first + b, "gaussian", real, fault) for b in range(B)]
    return [VectorizedCage(makes, seeds=[100 + first + b for b in range(B)])]


def build(config: Config, stack: Any, folder: Any, console: Any) -> OffPolicyRunner:
    """Build the off-policy run of one learner."""
    learners = stack.enter_context(Learners(config.learners, build, config, start_method="fork"))
    batch_spec = learners.share_of(BatchSpec(config.T, config.B))
    batch_size = learners.share_of(config.batch_size)
    if config.mistake == "other batch size" and learners.rank:
        batch_size += 1
    seeds = learners.seeds(config.seed)
    # Environments draw from these, too.
    random.seed(learners.rank)
    np.random.seed(learners.rank)
    torch.manual_seed(learners.rank)
    fault = Fault(config, learners.rank)
    cages = environments(config, learners.rank, batch_spec.B, fault)
    sac = config.kind == "sac"
    agent: Any = (sac_agent_for if sac else td3_agent_for)(
        cages[0].spaces,
        seeds=seeds,
        hidden_sizes=(8, 8),
        **({} if sac else {"exploration_noise": 0.1}),
    )
    handler, final = TorchHandler(agent), [FinalObservations()]
    samples = allocate_samples(cages, batch_spec, handler, final, n_batches=20)
    sampler = stack.enter_context(BasicSampler(batch_spec, cages, handler, samples, [], final))
    kind = PrioritizedReplay if config.mistake == "prioritized" else FaultyReplay
    more = {"alpha": 0.6, "beta": 0.4} if config.mistake == "prioritized" else {}
    replay = kind(
        samples, batch_size=batch_size, discount=0.9, seed=seeds.integer("replay"), **more
    )
    replay.fault, replay.made_up = fault, config.made_up
    replay.first = learners.rank * batch_size
    settings = {
        "learning_rate": 1e-3,
        "tau": 0.05,
        "random_steps": 24,
        "seed": seeds.integer("algorithm"),
        "update": config.update,
    }
    if sac:
        settings |= {"target_entropy": None, "initial_temperature": 0.5, "learn_temperature": True}
    else:
        settings |= {"policy_delay": 2, "target_noise": 0.2, "target_noise_clip": 0.5}
    algorithm: Any = TD3 if not sac else OwnUpdate if config.mistake == "own update" else SAC
    return OffPolicyRunner(
        batch_spec,
        sampler,
        algorithm(agent, **settings),
        replay,
        replay_ratio=0.5,
        learning_starts=32,
        learners=learners,
        n_steps=config.n_steps,
        logger=stack.enter_context(Logger([JsonlWriter(folder.path)])),
        log_interval_steps=64,
        folder=folder,
        console=console,
        checkpoint_interval_s=0.0,
    )


def build_asynchronous(config: Config, stack: Any, folder: Any, console: Any) -> AsynchronousRunner:
    """Build the run of one learner of PPO with an asynchronous sampler."""
    learners = stack.enter_context(
        Learners(config.learners, build_asynchronous, config, start_method="fork")
    )
    batch_spec = learners.share_of(BatchSpec(config.T, config.B))
    seeds = learners.seeds(config.seed)
    acting_seed = seeds.integer("acting")
    fault = Fault(config, learners.rank)
    first = learners.rank * batch_spec.B
    mixing = [NormalizeAdvantage()] if config.mistake == "mixing" else []

    def make_sampler() -> Any:
        cages = environments(config, learners.rank, batch_spec.B, fault)
        seeds = Seeds(acting_seed)
        acting = TorchHandler(agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(8, 8)))
        transforms = [MadeUpActions(first, "gaussian"), EstimateAdvantage(0.9, 0.9), *mixing]
        return build_sampler(batch_spec, cages, acting, [], transforms)

    spaces = environments(config, learners.rank, 1, fault)[0].spaces
    agent = agent_for(spaces, seeds=seeds, hidden_sizes=(8, 8))
    sampler = stack.enter_context(
        AsynchronousSampler(make_sampler, agent=agent, start_method="fork")
    )
    algorithm = PPO(
        agent,
        learning_rate=1e-3,
        learning_rate_anneal_steps=None,
        epochs=2,
        minibatches=2,
        ratio_clip=0.2,
        value_clip=None,
        value_loss_coeff=0.5,
        entropy_loss_coeff=0.01,
        clip_grad_norm=0.5,
        kl_limit=None,
        seed=seeds.integer("algorithm"),
    )
    return AsynchronousRunner(
        batch_spec,
        sampler,
        TransformingAlgorithm(algorithm, [] if mixing else [NormalizeAdvantage()]),
        learners=learners,
        n_steps=config.n_steps,
        logger=stack.enter_context(Logger([JsonlWriter(folder.path)])),
        log_interval_steps=64,
        folder=folder,
        console=console,
        checkpoint_interval_s=0.0,
    )
