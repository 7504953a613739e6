"""Train PPO on CartPole from fragments of experience that workers sample while the trainer learns.

workers (threads, processes, or actors on Ray)  --fragments-->  trainer
                                                <--weights----
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import gymnasium as gym
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.algos import TransformingAlgorithm
from parllel.distributed.rollouts import (
    EpisodeStatistics,
    FragmentSampler,
    FragmentSender,
    LocalRollouts,
    ProcessRollouts,
    ReplayBuffer,
    ReplayBufferInterface,
    Rollouts,
    RolloutWorker,
    SynchronousSchedule,
    Trainer,
    WorkerContext,
)
from parllel.runs import RunFolder
from parllel.samplers import EvalSampler
from parllel.torch import PPO, EvaluatePolicy, TorchHandler, agent_for
from parllel.transforms import (
    EstimateVtrace,
    FinalObservations,
    ImportanceWeights,
    NormalizeAdvantage,
)
from parllel_patterns import (
    PpoParameters,
    allocate_eval_samples,
    allocate_samples,
    build_cages,
    build_logger,
    build_sampler,
    main,
)

MAKE_ENV = partial(gym.make, "CartPole-v1", render_mode="rgb_array")


@dataclass(frozen=True)
class Config:
    """Settings of a run."""

    seed: int = 0  # source of all random numbers
    n_workers: int = 2  # each with its own policy
    processes: bool = False  # run the workers in processes, not in threads
    ray: bool = False  # run the workers on Ray, started for this run
    ray_address: str | None = None  # or on an existing cluster, host:port; auto: this machine's
    cpus_per_worker: float = 0.5  # reserved by Ray
    n_envs: int = 8  # environments of each worker
    T: int = 64  # steps of a fragment
    B: int = 32  # fragments in a batch
    max_staleness: int = 4  # how many versions old the weights may be
    publish_interval: int = 1  # updates between versions of the weights
    n_steps: int = 300_000  # environment steps to train for
    log_interval_steps: int = 10_240  # environment steps between rows of the log
    n_eval_episodes: int = 16  # episodes of an evaluation
    target_return: float = 475.0  # mean evaluation return at which the run ends
    discount: float = 0.99  # of rewards, per step
    gae_lambda: float = 0.95  # of the advantages
    ppo: PpoParameters = field(
        default_factory=lambda: PpoParameters(
            learning_rate=1e-3, epochs=10, minibatches=8, kl_limit=0.01
        )
    )


def build_worker(context: WorkerContext, config: Config) -> RolloutWorker:
    """Build one worker, in the thread or process where it runs: environments, policy, sampler and sender."""
    seeds = Seeds(Seeds(config.seed).integer(context.name))
    cages = build_cages(MAKE_ENV, config.n_envs, seeds=seeds)
    handler = TorchHandler(agent_for(cages[0].spaces, seeds=seeds, policy_gain=0.0))
    batch_spec = BatchSpec(config.T, config.n_envs)
    sampler = build_sampler(batch_spec, cages, handler, next_observation=True)
    sender = FragmentSender(context.storage, capacity=1)
    context.stack.callback(sender.close, 0.0)  # at the end of a run, unsent fragments are dropped
    return RolloutWorker(
        SynchronousSchedule(sampler),
        fragment_length=config.T,
        seed=seeds.integer("noise"),
        producer=context.name,
        sender=sender,
        statistics=context.statistics,
    )


def start_workers(
    config: Config, stack: ExitStack, trains: bool
) -> tuple[ReplayBufferInterface, EpisodeStatistics, Rollouts]:
    """Start all workers, here or on Ray, and return their connection to the trainer."""
    build = partial(build_worker, config=config)
    # Imported here: playing the trained policy later needs no cluster.
    if not (trains and (config.ray or config.ray_address)):
        buffer = stack.enter_context(ReplayBuffer(config.B, max_staleness=config.max_staleness))
        statistics = EpisodeStatistics()
        kind = ProcessRollouts if trains and config.processes else LocalRollouts
        local = kind(build, config.n_workers, buffer, statistics)
        return buffer, statistics, stack.enter_context(local)
    # Imported here: a run in threads does not need Ray.
    from parllel.distributed.rollouts.on_ray import (
        RayEpisodeStatistics,
        RayReplayBuffer,
        RayRollouts,
        RaySession,
        WorkerOptions,
    )

    stack.enter_context(RaySession(config.ray_address))
    shared = stack.enter_context(RayReplayBuffer(config.B, max_staleness=config.max_staleness))
    episodes = stack.enter_context(RayEpisodeStatistics())
    options = WorkerOptions(cpus=config.cpus_per_worker)
    on_ray = RayRollouts(build, config.n_workers, shared, episodes, options)
    return shared, episodes, stack.enter_context(on_ray)


def build(config: Config, stack: ExitStack, folder: RunFolder, console: Console | None) -> Trainer:
    """Build a run. Anything to close goes on the stack."""
    seeds = Seeds(config.seed)
    buffer, statistics, workers = start_workers(config, stack, folder.trains)

    eval_cages = build_cages(
        MAKE_ENV, config.n_eval_episodes, seeds=seeds, name="evaluation", stack=stack
    )
    agent = agent_for(eval_cages[0].spaces, seeds=seeds, policy_gain=0.0)
    handler = TorchHandler(agent)
    batch_spec, transforms = BatchSpec(config.T, config.B), [FinalObservations()]
    sampler = FragmentSampler(
        batch_spec,
        buffer,
        handler,
        # The trainer has no environments except those of evaluations.
        allocate_samples(eval_cages, batch_spec, handler, transforms, storage="local"),
        batch_transforms=transforms,
        workers=workers,
        statistics=statistics,
    )
    corrections = [
        EvaluatePolicy(agent),
        EstimateVtrace(config.discount, gae_lambda=config.gae_lambda),
        ImportanceWeights(),
        NormalizeAdvantage(),
    ]
    ppo = PPO(agent, **config.ppo, seed=seeds.integer("algorithm"))
    return Trainer(
        batch_spec,
        stack.enter_context(sampler),
        TransformingAlgorithm(ppo, corrections),
        publish_interval=config.publish_interval,
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=EvalSampler(
            eval_cages, handler, allocate_eval_samples(eval_cages), config.n_eval_episodes
        ),
        target_return=config.target_return,
        folder=folder,
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    result, _ = main(
        build, Config, base="runs/cartpole_cluster", name=lambda c: f"ppo-seed{c.seed}"
    )
    raise SystemExit(result.exit_status or int(not result.solved))
