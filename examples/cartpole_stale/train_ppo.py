"""Train PPO on CartPole with batches sampled by weights eight updates old, with and without V-trace.

Learners with many sampling processes get such batches. Here a sampler keeps old weights, so the staleness is
the same on every machine. The curves in this folder were written by:

    python examples/cartpole_stale/train_ppo.py --seeds 0 1 2 3 4 --correction vtrace none \
        --curve examples/cartpole_stale/curve

Importance weights need a smaller clip:

    python examples/cartpole_stale/train_ppo.py --seeds 0 1 2 3 4 --correction weights vtrace none \
        --ppo.ratio-clip 0.05 --curve examples/cartpole_stale/small_clip
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.algos import Algorithm, TransformingAlgorithm
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.samplers import EvalSampler, Sampler
from parllel.torch import PPO, EvaluatePolicy, PgAgent, TorchHandler, agent_for
from parllel.transforms import (
    BatchTransform,
    EstimateAdvantage,
    EstimateVtrace,
    FinalObservations,
    ImportanceWeights,
    NormalizeAdvantage,
)
from parllel_patterns import (
    CurveFile,
    PpoParameters,
    allocate_eval_samples,
    build_cages,
    build_logger,
    build_sampler,
    main_for_each,
)

MAKE_ENV = partial(gym.make, "CartPole-v1", render_mode="rgb_array")
SOLVED = 475.0  # mean return of an evaluation


@dataclass(frozen=True)
class Config:
    """Settings of a run.

    Attributes:
        correction: "none"; "vtrace" for values and advantages; "weights" for the objective too.
    """

    seed: int = 0  # source of all random numbers
    staleness: int = 8  # age of the sampling weights, in updates
    correction: Literal["none", "vtrace", "weights"] = "vtrace"
    T: int = 32  # steps of each environment in a batch
    B: int = 16  # parallel environments
    n_steps: int = 102_400  # environment steps to train for
    log_interval_steps: int = 5_120  # environment steps between rows of the log
    n_eval_episodes: int = 16  # episodes of an evaluation
    discount: float = 0.99  # of rewards, per step
    gae_lambda: float = 0.95  # of the estimates of advantages, with and without V-trace
    ppo: PpoParameters = field(default_factory=lambda: PpoParameters(learning_rate=1e-3))


class StaleSampler(Sampler):
    """Sampler with the learner's weights from some updates ago (at first, its initial ones).

    Args:
        sampler: the sampler of `actor`.
        actor: a copy of the learner.
        staleness: age of the weights in updates. The learner makes one update per batch.
    """

    def __init__(self, sampler: Sampler, actor: PgAgent, learner: PgAgent, staleness: int) -> None:
        self.sampler, self.actor, self.learner = sampler, actor, learner
        self.weights: deque[Any] = deque(maxlen=staleness + 1)

    def collect_batch(self, elapsed_steps: int) -> Any:
        """Sample a batch with the old weights."""
        self.weights.append(self.learner.state()["model"])
        self.actor.load_state({**self.actor.state(), "model": self.weights[0]})
        return self.sampler.collect_batch(elapsed_steps)

    def state(self, *, environments: bool = True) -> Any:
        """Return the state of the sampler, and the queued weights."""
        inner = self.sampler.state(environments=environments)
        return {"sampler": inner, "weights": list(self.weights)}

    def load_state(self, state: Any) -> None:
        """Restore a state returned by `state`."""
        self.sampler.load_state(state["sampler"])
        self.weights.extend(state["weights"])

    def close(self) -> None:
        """Close the sampler."""
        self.sampler.close()


def build_algorithm(
    config: Config, agent: PgAgent, seeds: Seeds
) -> tuple[Algorithm, list[BatchTransform]]:
    """Build the algorithm and the sampler's transforms."""
    ppo = PPO(agent, **config.ppo, seed=seeds.integer("algorithm"))
    if config.correction == "none":
        return ppo, [EstimateAdvantage(config.discount, config.gae_lambda), NormalizeAdvantage()]
    transforms: list[BatchTransform] = [
        EvaluatePolicy(agent),
        EstimateVtrace(config.discount, gae_lambda=config.gae_lambda),
        NormalizeAdvantage(),
    ]
    if config.correction == "weights":
        transforms.append(ImportanceWeights())
    return TransformingAlgorithm(ppo, transforms), [FinalObservations()]


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    cages = build_cages(MAKE_ENV, config.B, seeds=seeds, stack=stack)
    agent = agent_for(cages[0].spaces, seeds=seeds, policy_gain=0.0)
    actor = agent.copy_to_device("cpu")
    algorithm, transforms = build_algorithm(config, agent, seeds)
    sampler = build_sampler(batch_spec, cages, TorchHandler(actor), [], transforms)
    eval_cages = build_cages(
        MAKE_ENV, config.n_eval_episodes, seeds=seeds, name="evaluation", stack=stack
    )
    eval_samples = allocate_eval_samples(eval_cages)
    return OnPolicyRunner(
        batch_spec,
        StaleSampler(sampler, actor, agent, config.staleness),
        algorithm,
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=EvalSampler(
            eval_cages, TorchHandler(agent), eval_samples, config.n_eval_episodes
        ),
        folder=folder,
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    curve = CurveFile()
    runs = main_for_each(
        build,
        Config,
        {"--seeds": "--seed", "--correction": "--correction"},
        base="runs/cartpole_stale",
        name=lambda c: f"ppo-{c.correction}-seed{c.seed}",
        curve=curve,
    )
    returns: dict[str, list[Any]] = {}
    solved: dict[str, list[Any]] = {}
    for result, folder in runs:
        correction = folder.read_record().config["correction"]
        points = result.curves["evaluation"]
        returns.setdefault(correction, []).append(points)
        solved.setdefault(correction, []).append(
            next((step for step, return_, *_ in points if return_ >= SOLVED), None)
        )
    curves = {}
    for correction, found in returns.items():
        steps, values = np.array(found[0])[:, 0], np.array(found)[:, :, 1]
        # Median over seeds, with a band from the lowest to the highest.
        band = np.stack((steps, np.median(values, 0), values.min(0), values.max(0)), axis=1)
        curves[correction] = [(a, b, c, d) for a, b, c, d in band.tolist()]
    staleness = runs[0][1].read_record().config["staleness"]
    title = f"PPO on CartPole, batches {staleness} updates old: median of the seeds"
    curve.write(runs, curves, title=title, steps_to_475=solved)
