"""Ours in JAX: the build of examples/cartpole_jax, started as `python -m ... SETTINGS`."""

from __future__ import annotations

import sys
import time
from functools import partial

import gymnasium as gym
import jax

from benchmarks.end_to_end.settings import Reporter, Settings
from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.jax import PPO, agent_for
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import build_cages, build_sampler


def main(settings: Settings) -> None:
    """Train and report."""
    reporter = Reporter()
    seeds, spec = Seeds(settings.seed), BatchSpec(settings.T, settings.B)
    cages = build_cages(partial(gym.make, settings.env), settings.B, seeds=seeds)
    agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=settings.hidden_sizes)
    algorithm = PPO(
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
    transforms = [EstimateAdvantage(settings.discount, settings.gae_lambda), NormalizeAdvantage()]
    with build_sampler(spec, cages, NumpyHandler(agent), [], transforms) as sampler:
        reporter.ready(jax=jax.__version__, gymnasium=gym.__version__)
        for i in range(settings.n_batches):
            samples, trajs = sampler.collect_batch(i * settings.batch_size)
            sampled_at = time.perf_counter()
            algorithm.optimize_agent((i + 1) * settings.batch_size, samples)
            reporter.batch(sampled_at, [traj.return_ for traj in trajs])
    reporter.end()


if __name__ == "__main__":
    main(Settings.from_json(sys.argv[1]))
