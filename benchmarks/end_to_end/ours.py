"""Ours: the build of the examples, timed; started as `python -m benchmarks.end_to_end.ours SETTINGS`."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import gymnasium as gym
import torch

from benchmarks.end_to_end.settings import Reporter, Settings
from parllel import BatchSpec, Seeds
from parllel.agents import Handler
from parllel.cages import CageInterface, Spaces, SynchronizedProcessCage, TrajInfo
from parllel.samplers import (
    AlternatingSampler,
    AsynchronousSampler,
    BasicSampler,
    BatchSampler,
    RolloutSampler,
)
from parllel.torch import PPO, PgAgent, SmallPolicyHandler, TorchHandler, agent_for
from parllel.transforms import (
    BatchTransform,
    EstimateAdvantage,
    NormalizeAdvantage,
    NormalizeObservations,
    NormalizeRewards,
    StepTransform,
)
from parllel_patterns import allocate_samples, build_cages

HANDLERS: dict[str, type[TorchHandler]] = {"torch": TorchHandler, "small": SmallPolicyHandler}
SAMPLERS: dict[str, type[BatchSampler]] = {
    "basic": BasicSampler,
    "alternating": AlternatingSampler,
    "rollout": RolloutSampler,
}


def make_cages(settings: Settings, seeds: Seeds) -> list[CageInterface]:
    """Return the environments, in this process or as `options["synchronized"]` says."""
    # The compiled environments play the same episodes.
    compiled = "parllel.envs.compiled:parllel/" if settings.options.get("compiled_envs") else ""
    make_env = partial(gym.make, compiled + settings.env)
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


def make_agent(spaces: Spaces, settings: Settings, seeds: Seeds) -> PgAgent:
    """Return the agent that learns, or its copy in the sampling process."""
    return agent_for(
        spaces,
        seeds=seeds,
        hidden_sizes=settings.hidden_sizes,
        initial_log_std=settings.initial_log_std,
    )


def make_transforms(settings: Settings) -> tuple[list[StepTransform], list[BatchTransform]]:
    """Return the transforms of steps and of batches, as in the examples."""
    discount, gae_lambda = settings.discount, settings.gae_lambda
    if not settings.normalize:
        return [], [EstimateAdvantage(discount, gae_lambda), NormalizeAdvantage()]
    return [NormalizeObservations()], [
        NormalizeRewards(discount),
        EstimateAdvantage(discount, gae_lambda, reward="env.normalized_reward"),
        NormalizeAdvantage(),
    ]


def make_sampler(settings: Settings, seeds: Seeds, *, switching: bool = False) -> BatchSampler:
    """Return the sampler with environments, agent and buffer, in the order of the data."""
    with ExitStack() as stack:
        cages = make_cages(settings, seeds)
        for cage in cages:
            stack.callback(cage.close)
        agent = make_agent(cages[0].spaces, settings, seeds)
        handler = HANDLERS[settings.options.get("handler", "torch")](agent)
        steps, batches = make_transforms(settings)
        kind = SAMPLERS[settings.options.get("sampler", "basic")]
        in_workers = kind is RolloutSampler
        batch_spec = BatchSpec(settings.T, settings.B)
        samples = allocate_samples(
            cages, batch_spec, handler, [*steps, *batches], noise=in_workers, switching=switching
        )
        if in_workers:
            give_policies(cages, handler)
        sampler = kind(batch_spec, cages, handler, samples, steps, batches)
        stack.pop_all()  # from here on the sampler closes them
    return sampler


def sample_ahead(settings: Settings) -> BatchSampler:
    """Build the sampler of the sampling process."""
    torch.set_num_threads(settings.torch_threads)
    return make_sampler(settings, Seeds(settings.seed), switching=True)


def give_policies(cages: list[CageInterface], handler: Handler) -> None:
    """Let a copy of the policy act in each process."""
    assert isinstance(handler, SmallPolicyHandler)
    for cage in cages:
        assert isinstance(cage, SynchronizedProcessCage)
        cage.set_policy(handler.worker_policy())


def build(settings: Settings, stack: ExitStack) -> tuple[BatchSampler | AsynchronousSampler, PPO]:
    """Put a training together; what must be closed goes on the stack."""
    seeds = Seeds(settings.seed)
    sampler: BatchSampler | AsynchronousSampler
    if settings.options.get("overlapped"):
        with closing(gym.make(settings.env)) as env:
            spaces = Spaces(env.observation_space, env.action_space, settings.env)
        agent: Any = make_agent(spaces, settings, seeds)
        sampler = AsynchronousSampler(partial(sample_ahead, settings), agent=agent)
    else:
        sampler = make_sampler(settings, seeds)
        agent = sampler.handler.agent
    stack.callback(sampler.close)
    return sampler, make_ppo(agent, settings, seeds)


def make_ppo(agent: PgAgent, settings: Settings, seeds: Seeds) -> PPO:
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
        _ = sampler.stats  # the sampling process is ready once they are there
        reporter.ready(torch=torch.__version__, gymnasium=gym.__version__)
        for i in range(settings.n_batches):
            samples, trajs = sampler.collect_batch(i * settings.batch_size)
            sampled_at = time.perf_counter()
            algorithm.optimize_agent((i + 1) * settings.batch_size, samples)
            if isinstance(sampler, AsynchronousSampler):
                sampler.publish()
            reporter.batch(sampled_at, [traj.return_ for traj in trajs])
    reporter.end()


if __name__ == "__main__":
    main(Settings.from_json(sys.argv[1]))
