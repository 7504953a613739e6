"""Ours: the build of the examples, timed; started as `python -m benchmarks.end_to_end.ours SETTINGS`."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from functools import partial
from typing import Any

import gymnasium as gym
import torch

from benchmarks.end_to_end.settings import Reporter, Settings
from parllel import BatchSpec, Seeds
from parllel.agents import Handler
from parllel.cages import CageInterface, SynchronizedProcessCage, TrajInfo
from parllel.samplers import AlternatingSampler, BasicSampler, BatchSampler, RolloutSampler
from parllel.torch import (
    PPO,
    CategoricalHead,
    CategoricalPgAgent,
    PgModel,
    SmallPolicyHandler,
    TorchHandler,
)
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import allocate_samples, build_cages

HANDLERS: dict[str, type[Handler]] = {"torch": TorchHandler, "small": SmallPolicyHandler}
SAMPLERS: dict[str, type[BatchSampler]] = {
    "basic": BasicSampler,
    "alternating": AlternatingSampler,
    "rollout": RolloutSampler,
}


def make_cages(settings: Settings, seeds: Seeds) -> list[CageInterface]:
    """Return the environments, in this process or as `options["synchronized"]` says."""
    make_env = partial(gym.make, settings.env)
    traj_info = partial(TrajInfo, discount=settings.discount)
    synchronized = settings.options.get("synchronized")
    if synchronized is None:
        return build_cages(make_env, settings.B, seeds=seeds, traj_info=traj_info)
    cage = SynchronizedProcessCage(
        [make_env] * settings.B,
        seeds=seeds.spawn("environments", settings.B),
        traj_info=traj_info,
        **synchronized,
    )
    return [cage]


def build(settings: Settings, stack: ExitStack) -> tuple[BatchSampler, PPO]:
    """Put a training together, in the order of the data; what must be closed goes on the stack."""
    seeds = Seeds(settings.seed)
    batch_spec = BatchSpec(settings.T, settings.B)
    cages = make_cages(settings, seeds)
    for cage in cages:
        stack.callback(cage.close)
    spaces: Any = cages[0].spaces
    n_actions = int(spaces.action.n)
    model = PgModel(
        spaces.observation.shape,
        CategoricalHead(n_actions),
        settings.hidden_sizes,
        seed=seeds.integer("model"),
    )
    agent = CategoricalPgAgent(model, n_actions, seed=seeds.integer("agent"))
    handler = HANDLERS[settings.options.get("handler", "torch")](agent)
    transforms = [
        EstimateAdvantage(settings.discount, settings.gae_lambda),
        NormalizeAdvantage(),
    ]
    make_sampler = SAMPLERS[settings.options.get("sampler", "basic")]
    in_workers = make_sampler is RolloutSampler
    samples = allocate_samples(cages, batch_spec, handler, transforms, noise=in_workers)
    if in_workers:
        give_policies(cages, handler)
    sampler = make_sampler(batch_spec, cages, handler, samples, batch_transforms=transforms)
    return sampler, make_ppo(agent, settings, seeds)


def give_policies(cages: list[CageInterface], handler: Handler) -> None:
    """Let a copy of the policy act in each process."""
    assert isinstance(handler, SmallPolicyHandler)
    for cage in cages:
        assert isinstance(cage, SynchronizedProcessCage)
        cage.set_policy(handler.worker_policy())


def make_ppo(agent: CategoricalPgAgent, settings: Settings, seeds: Seeds) -> PPO:
    """Return the algorithm with the hyperparameters that all sides share."""
    return PPO(
        agent,
        learning_rate=settings.learning_rate,
        learning_rate_anneal_steps=settings.n_batches * settings.batch_size,
        epochs=settings.epochs,
        minibatches=settings.minibatches,
        ratio_clip=settings.ratio_clip,
        value_clip=None,
        value_loss_coeff=settings.value_loss_coeff,
        entropy_loss_coeff=settings.entropy_loss_coeff,
        clip_grad_norm=settings.clip_grad_norm,
        kl_limit=None,
        seed=seeds.integer("algorithm"),
    )


def main(settings: Settings) -> None:
    """Train and report."""
    torch.set_num_threads(settings.torch_threads)
    reporter = Reporter()
    with ExitStack() as stack:
        sampler, algorithm = build(settings, stack)
        reporter.ready(torch=torch.__version__, gymnasium=gym.__version__)
        for i in range(settings.n_batches):
            samples, trajs = sampler.collect_batch(i * settings.batch_size)
            sampled_at = time.perf_counter()
            algorithm.optimize_agent((i + 1) * settings.batch_size, samples)
            reporter.batch(sampled_at, [traj.return_ for traj in trajs])
    reporter.end()


if __name__ == "__main__":
    main(Settings.from_json(sys.argv[1]))
