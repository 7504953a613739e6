"""How much longer does loading a policy take than building its run?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.seeding import Seeds
from parllel.types import BatchSpec

N_STEPS = 1024


def build(config: dict[str, Any], stack: ExitStack, folder: Any, console: Any) -> Any:
    """Put together a small run of PPO in CartPole, with an evaluation."""
    from parllel.logging import Logger
    from parllel.runners import OnPolicyRunner
    from parllel.torch import PPO, TorchHandler, agent_for
    from parllel.transforms import EstimateAdvantage, NormalizeObservations
    from parllel_patterns import PPO_DEFAULTS, build_cages, build_eval_sampler, build_sampler

    seeds, make_env = Seeds(config["seed"]), partial(gym.make, "CartPole-v1")
    cages = build_cages(make_env, 8, seeds=seeds, stack=stack)
    agent = agent_for(cages[0].spaces, seeds=seeds)
    steps, batch_spec = [NormalizeObservations()], BatchSpec(64, 8)
    sampler = build_sampler(
        batch_spec, cages, TorchHandler(agent), steps, [EstimateAdvantage(0.98, 0.9)]
    )
    eval_cages = build_cages(make_env, 4, seeds=seeds, name="evaluation", stack=stack)
    return OnPolicyRunner(
        batch_spec,
        sampler,
        PPO(agent, **PPO_DEFAULTS, seed=seeds.integer("ppo")),
        n_steps=N_STEPS,
        logger=stack.enter_context(Logger([])),
        log_interval_steps=N_STEPS,
        eval_sampler=build_eval_sampler(eval_cages, sampler, 8),
        folder=folder,
        seeds=seeds,
    )


@contextmanager
def loading() -> Iterator[Sides]:
    """Load the policy of a run that was trained for two batches, and put the run together."""
    from parllel.policies import load_policy
    from parllel.runners import train
    from parllel.runners.runs import rebuild

    with TemporaryDirectory() as base:
        _, folder = train(build, {"seed": 0}, base=base, name="cartpole")

        def load() -> int:
            load_policy(folder.path, build=build).close()
            return 1

        def put_together() -> int:
            with ExitStack() as stack:
                rebuild(folder.path, stack, build=build)
            return 1

        def check() -> None:
            with ExitStack() as stack:
                runner = rebuild(folder.path, stack, build=build)
                policy = stack.enter_context(load_policy(folder.path, build=build))
                assert policy.elapsed_steps == runner.result.elapsed_steps == N_STEPS

        yield Sides(load, put_together, check, "PPO in CartPole, 8 environments in this process")


COMPARISONS = [
    Comparison(
        "load_policy/run",
        "a policy out of its run's folder, against the run put together",
        loading,
        reads="slower",
        target=1.2,
        aim=1.1,
        needs=("torch",),
    )
]

test_load_policy = timed_sides(COMPARISONS)
