"""Off-policy runs that are killed and resumed, with the replay in the checkpoint."""

from __future__ import annotations

from functools import partial

import pytest
from tabular import ListReplay, QLearning, make_cages, make_handler, make_lake

from parllel import BatchSpec, Seeds
from parllel.cages import ProcessCage, SynchronizedProcessCage
from parllel.replays import PrioritizedReplay, UniformReplay
from parllel.runners import OffPolicyRunner, checkpointing
from parllel.samplers import BasicSampler, EvalSampler, RecurrentSampler
from parllel.testing.resume_contract import ResumeContract
from parllel.transforms import FinalObservations
from parllel_patterns import allocate_eval_samples, allocate_samples

BATCH = BatchSpec(8, 2)
SEED = 3


def make_single(seeds, **options):
    each = enumerate(seeds.spawn("environments", BATCH.B))
    return [ProcessCage(make_lake, seed=seed, index=i, **options) for i, seed in each]


def make_together(seeds, **options):
    seeds = seeds.spawn("environments", BATCH.B)
    return [SynchronizedProcessCage([make_lake] * BATCH.B, seeds=seeds, n_workers=1, **options)]


CAGES = {
    "vectorized": partial(make_cages, BATCH.B),
    "processes": make_single,
    "synchronized": make_together,
}


REPLAYS = {
    "list": partial(ListReplay, capacity=60),
    "uniform": partial(UniformReplay, discount=0.95, n_step=2),
    "prioritized": partial(PrioritizedReplay, discount=0.95, beta_draws=30),
}


@pytest.mark.parametrize(
    ("cages", "kind", "replay"),
    [
        ("vectorized", BasicSampler, "list"),
        ("vectorized", BasicSampler, "prioritized"),
        ("processes", BasicSampler, "uniform"),
        ("synchronized", RecurrentSampler, "uniform"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
@pytest.mark.few(1)
class TestQLearning(ResumeContract):
    @pytest.fixture(autouse=True)
    def parts(self, cages, kind, replay, monkeypatch):
        # Pictures take longer than all batches, and are no part of what is compared.
        monkeypatch.setattr(checkpointing, "plot_learning_curve", lambda *arguments: None)
        self.make_cages, self.kind, self.make_replay = CAGES[cages], kind, REPLAYS[replay]

    def make_runner(self, stack, folder, callbacks):
        seeds = Seeds(SEED)
        automatic = self.kind is not RecurrentSampler
        cages = self.make_cages(seeds, reset_automatically=automatic)
        eval_cages = make_cages(2, seeds, "evaluation")
        for cage in [*cages, *eval_cages]:
            stack.callback(cage.close)
        handler = make_handler(seeds.integer("agent"))
        transforms = [FinalObservations()]
        samples = allocate_samples(cages, BATCH, handler, transforms, n_batches=5)
        sampler = self.kind(BATCH, cages, handler, samples, batch_transforms=transforms)
        return OffPolicyRunner(
            BATCH,
            sampler,
            QLearning(handler.agent),
            self.make_replay(samples, batch_size=16, seed=seeds.integer("replay")),
            # With 16 steps in a batch, some remain owed at each interruption.
            replay_ratio=0.3,
            learning_starts=20,
            n_steps=BATCH.size * 8,
            logger=self.make_logger(folder),
            log_interval_steps=BATCH.size * 2,
            eval_sampler=EvalSampler(eval_cages, handler, allocate_eval_samples(eval_cages), 2),
            folder=folder,
            seeds=seeds,
            callbacks=callbacks,
            checkpoint_interval_s=0.0,
        )
