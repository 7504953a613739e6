"""A run of PPO on CartPole, as small as may be, that writes a checkpoint after every row."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial

import gymnasium as gym
import torch

from parllel import BatchSpec, Seeds
from parllel.logging import CsvWriter, Logger
from parllel.runners import OnPolicyRunner, resume, train
from parllel.samplers import BasicSampler, EvalSampler, Plan
from parllel.torch import PPO, CategoricalHead, CategoricalPgAgent, PgModel, TorchHandler
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage, NormalizeObservations
from parllel_patterns import PPO_DEFAULTS, allocate_eval_samples, allocate_samples, build_cages


@dataclass(frozen=True)
class Config:
    """How long, and where the environments are."""

    seed: int = 0
    n_steps: int = 300_000
    n_workers: int = 0


def build(config, stack, folder, console):
    """Put the run together."""
    torch.set_num_threads(1)
    seeds, batch_spec = Seeds(config.seed), BatchSpec(32, 8)
    make_env = partial(gym.make, "CartPole-v1")
    parallel = Plan(config.n_workers, 4) if config.n_workers else False
    cages = build_cages(make_env, batch_spec.B, seeds=seeds, parallel=parallel)
    eval_cages = build_cages(make_env, 4, seeds=seeds, name="evaluation")
    for cage in (*cages, *eval_cages):
        stack.callback(cage.close)
    model = PgModel((4,), CategoricalHead(2), [32], seed=seeds.integer("model"))
    agent = CategoricalPgAgent(model, 2, seed=seeds.integer("agent"))
    handler = TorchHandler(agent)
    normalize = NormalizeObservations()
    batch_transforms = [EstimateAdvantage(0.98, 0.9), NormalizeAdvantage()]
    samples = allocate_samples(cages, batch_spec, handler, [normalize, *batch_transforms])
    sampler = BasicSampler(batch_spec, cages, handler, samples, [normalize], batch_transforms)
    eval_samples = allocate_eval_samples(eval_cages)
    return OnPolicyRunner(
        batch_spec,
        sampler,
        PPO(agent, **PPO_DEFAULTS, seed=seeds.integer("ppo")),
        n_steps=config.n_steps,
        logger=stack.enter_context(Logger([CsvWriter(folder.path)])),
        log_interval_steps=2 * batch_spec.size,
        eval_sampler=EvalSampler(eval_cages, handler, eval_samples, 4, [normalize]),
        state_parts={"agent": agent},
        folder=folder,
        seeds=seeds,
        checkpoint_interval_s=0.0,
    )


if __name__ == "__main__":
    base, name, n_workers = sys.argv[1:]
    if name.startswith("resume:"):
        resume(f"{base}/{name.removeprefix('resume:')}")
    else:
        train(build, Config(n_workers=int(n_workers)), base=base, name=name)
