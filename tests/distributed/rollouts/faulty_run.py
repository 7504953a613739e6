"""A training script whose environments fail: EnvWorkers in a thread, which a trainer learns from."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import gymnasium as gym
from faulty_cartpole import FaultyCartPole

from parllel import BatchSpec, Seeds
from parllel.distributed.rollouts import (
    AsynchronousSchedule,
    EnvWorker,
    EpisodeStatistics,
    FragmentSampler,
    FragmentSender,
    LocalRollouts,
    ReplayBuffer,
    RolloutWorker,
    Trainer,
)
from parllel.runners import Callback
from parllel.runs import RunFolder
from parllel.system.processes import RestartBudget
from parllel.torch import PPO, TorchHandler, agent_for
from parllel.transforms import EstimateAdvantage
from parllel_patterns import PPO_DEFAULTS, allocate_samples, build_cages, build_logger, main


@dataclass(frozen=True)
class Config:
    """Everything that can be changed about a run."""

    fault: str = "none"  # see faulty_cartpole.py: in the 30th step of each process
    made: str = "none"  # the same, in constructors
    again: str = "none"  # the same, in constructors of all processes but the first
    which: tuple[int, ...] = (0, 1)  # environments that fail
    timeout_s: float = 20.0  # for one of them
    n_steps: int = 256  # environment steps to train for
    stop_when_parked: bool = False  # after two more batches


class StopWhenParked(Callback):
    """End the run when the others have gone on without an environment."""

    def __init__(self, workers):
        self.workers = workers
        self.batches = 0

    def start(self, runner):
        self.runner = runner

    def after_sampling(self, elapsed_steps, samples, trajs):
        self.batches += any(status.parked for status in self.workers.statuses())
        if self.batches == 3:
            self.runner.stop("a parked environment")


def build_worker(place, config, folder):
    workers = []
    for i in range(2):
        chosen = config if i in config.which else Config()
        # Names alone, as an object of this script would have PyTorch imported where it goes.
        faults = {"fault": chosen.fault, "made": chosen.made, "again": chosen.again}
        make = partial(FaultyCartPole, folder / f"pids{i}", **faults)
        budget = RestartBudget(1, 600.0, 0.0, 0.0)
        worker = EnvWorker(make, seed=i, index=i, budget=budget, timeout_s=chosen.timeout_s)
        workers.append(place.stack.enter_context(worker))
    cages = [worker.cage for worker in workers]
    handler = TorchHandler(agent_for(cages[0].spaces, seeds=Seeds(1)))
    samples = allocate_samples(cages, BatchSpec(4, 2), handler)
    sender = FragmentSender(place.storage, capacity=1)
    place.stack.callback(sender.close, 0.0)
    return RolloutWorker(
        AsynchronousSchedule(workers, handler, samples, batch_size=2, max_wait_s=0.01),
        fragment_length=16,
        seed=0,
        producer=place.name,
        sender=sender,
        statistics=place.statistics,
    )


def build(config: Config, stack: ExitStack, folder: RunFolder, console):
    """Put a run together."""
    spec, statistics = BatchSpec(16, 4), EpisodeStatistics()
    buffer = stack.enter_context(ReplayBuffer(4))
    make = partial(build_worker, config=config, folder=folder.path)
    workers = stack.enter_context(LocalRollouts(make, 1, buffer, statistics))
    (cage,) = build_cages(partial(gym.make, "CartPole-v1"), 1, seeds=Seeds(0), stack=stack)
    agent = agent_for(cage.spaces, seeds=Seeds(0))
    handler, transforms = TorchHandler(agent), [EstimateAdvantage(0.99, 0.95)]
    sampler = FragmentSampler(
        spec,
        buffer,
        handler,
        allocate_samples([cage], spec, handler, transforms),
        batch_transforms=transforms,
        workers=workers,
        statistics=statistics,
    )
    return Trainer(
        spec,
        stack.enter_context(sampler),
        PPO(agent, **PPO_DEFAULTS, seed=0),
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=64,
        folder=folder,
        seeds=Seeds(0),
        callbacks=[StopWhenParked(workers)] if config.stop_when_parked else [],
        console=console,
    )


if __name__ == "__main__":
    raise SystemExit(main(build, Config, base="runs", name="faulty")[0].exit_status)
