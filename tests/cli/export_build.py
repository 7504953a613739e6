"""A run of PPO on CartPole that is over in a moment."""

from __future__ import annotations

from functools import partial

import gymnasium as gym

from parllel import BatchSpec, Seeds
from parllel.logging import CsvWriter, Logger
from parllel.runners import OnPolicyRunner
from parllel.transforms import EstimateAdvantage, NormalizeObservations
from parllel_patterns import PPO_DEFAULTS, build_cages, build_eval_sampler, build_sampler


def build(config, stack, folder, console):
    """Put the run together."""
    # Not above: processes of the tests would be larger, and take longer to fork.
    from parllel.torch import PPO, TorchHandler, agent_for

    seeds, batch_spec = Seeds(config["seed"]), BatchSpec(16, 2)
    make_env = partial(gym.make, "CartPole-v1")
    cages = build_cages(make_env, 2, seeds=seeds, stack=stack)
    handler = TorchHandler(agent_for(cages[0].spaces, seeds=seeds, policy_gain=3.0), threads=1)
    steps, batch = [NormalizeObservations()], [EstimateAdvantage(0.98, 0.9)]
    sampler = build_sampler(batch_spec, cages, handler, steps, batch)
    eval_cages = build_cages(make_env, 2, seeds=seeds, name="evaluation", stack=stack)
    return OnPolicyRunner(
        batch_spec,
        sampler,
        PPO(handler.agent, **PPO_DEFAULTS, seed=seeds.integer("ppo")),
        n_steps=64,
        logger=stack.enter_context(Logger([CsvWriter(folder.path)])),
        log_interval_steps=32,
        eval_sampler=build_eval_sampler(eval_cages, sampler, 4),
        folder=folder,
        seeds=seeds,
        console=console,
    )
