"""Our SAC: the build of examples/half_cheetah/train_sac.py, started as `python -m ... SETTINGS`."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from functools import partial

import gymnasium as gym
import torch

from benchmarks.end_to_end.settings import Reporter, SacSettings
from parllel import BatchSpec, Seeds
from parllel.replays import UniformReplay
from parllel.samplers import BasicSampler
from parllel.torch import SAC, TorchHandler, sac_agent_for
from parllel.transforms import FinalObservations
from parllel_patterns import SacParameters, allocate_samples, build_cages


def main(settings: SacSettings) -> None:
    """Train and report."""
    torch.set_num_threads(settings.torch_threads)
    reporter = Reporter()
    spec, seeds = BatchSpec(settings.update_interval, 1), Seeds(settings.seed)
    with ExitStack() as stack:
        cages = build_cages(partial(gym.make, settings.env), 1, seeds=seeds, stack=stack)
        agent = sac_agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=settings.hidden_sizes)
        handler, transforms = TorchHandler(agent), [FinalObservations()]
        samples = allocate_samples(
            cages, spec, handler, transforms, n_batches=-(-settings.n_steps // spec.size)
        )
        replay = UniformReplay(
            samples,
            batch_size=settings.transitions,
            discount=settings.discount,
            seed=seeds.integer("replay"),
        )
        sampler = BasicSampler(spec, cages, handler, samples, batch_transforms=transforms)
        stack.callback(sampler.close)
        parameters = SacParameters(
            learning_rate=settings.learning_rate, random_steps=settings.learning_starts
        )
        algorithm = SAC(agent, **parameters, seed=seeds.integer("algorithm"))
        reporter.ready(torch=torch.__version__, gymnasium=gym.__version__)
        steps = 0
        for batch in range(1, settings.n_batches + 1):
            returns, learning_s = [], 0.0
            while steps < batch * settings.batch_size:
                algorithm.before_sampling(steps)
                _, trajs = sampler.collect_batch(steps)
                replay.add(replay.samples)
                steps += spec.size
                returns += [traj.return_ for traj in trajs]
                begun = time.perf_counter()
                if steps > settings.learning_starts:
                    for _ in range(spec.size):
                        algorithm.optimize_agent(steps, replay.sample())
                learning_s += time.perf_counter() - begun
            reporter.batch(time.perf_counter() - learning_s, returns)
    reporter.end()


if __name__ == "__main__":
    main(SacSettings.from_json(sys.argv[1]))
