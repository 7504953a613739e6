from __future__ import annotations

import math
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest
from listed_runs import RowWriter
from tabular import ListReplay, QLearning, TabularAgent, make_cages, make_handler

from parllel import BatchSpec, Seeds
from parllel.algos import OffPolicyAlgorithm
from parllel.cages import SynchronizedProcessCage
from parllel.logging import Logger
from parllel.replays import Transitions
from parllel.runners import Callback, OffPolicyRunner, checkpointing
from parllel.runners.update_means import UpdateMeans
from parllel.runs import RunFolder
from parllel.samplers import (
    AlternatingSampler,
    AsynchronousSampler,
    BasicSampler,
    EvalSampler,
    RecurrentSampler,
    RolloutSampler,
)
from parllel.transforms import FinalObservations
from parllel_patterns import allocate_eval_samples, allocate_samples

SPEC = BatchSpec(5, 2)


class Recording(OffPolicyAlgorithm):
    """Keeps what it is called with."""

    def __init__(self, agent):
        self.agent = agent
        self.sampled, self.optimized = [], []

    def before_sampling(self, elapsed_steps):
        self.sampled.append(elapsed_steps)

    def optimize_agent(self, elapsed_steps, samples):
        assert isinstance(samples, Transitions)
        self.optimized.append(elapsed_steps)
        n = len(self.optimized)
        return {"number": np.float32(n), "array": np.full(2, n)} if n % 2 else {}


def build_sampler(
    stack, *, spec=SPEC, kind=BasicSampler, n_batches=1, cages=None, seeds=None, agent=None
):
    automatic = kind is not RecurrentSampler
    seeds = Seeds(0) if seeds is None else seeds
    cages = cages or make_cages(spec.B, seeds, reset_automatically=automatic)
    for cage in cages:
        stack.callback(cage.close)
    handler = make_handler()
    if agent is not None:
        handler.agent = agent
    transforms = [FinalObservations()]
    samples = allocate_samples(cages, spec, handler, transforms, n_batches=n_batches)
    return stack.enter_context(kind(spec, cages, handler, samples, batch_transforms=transforms))


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def writer():
    return RowWriter()


@pytest.fixture
def make_runner(stack, writer):
    def make(algorithm=Recording, *, sampler=None, replay=None, n_batches=4, spec=SPEC, **options):
        sampler = sampler or build_sampler(stack, n_batches=n_batches, spec=spec)
        replay = replay or ListReplay(sampler.samples, 8)
        if isinstance(algorithm, type):
            algorithm = algorithm(sampler.handler.agent)
        options = {
            "replay_ratio": 0.5,
            "learning_starts": 20,
            "n_steps": 100,
            "log_interval_steps": 50,
            "logger": Logger([writer]),
            **options,
        }
        return OffPolicyRunner(spec, sampler, algorithm, replay, **options)

    return make


# ---------------------------------------------------------------- the schedule of updates


@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.29, 1 / 3, 1, 2.5])
@pytest.mark.parametrize("spec", [BatchSpec(1, 1), BatchSpec(5, 2), BatchSpec(16, 3)])
@pytest.mark.parametrize("starts", [0, 7, 20])
def test_updates_follow_the_ratio_whatever_the_size_of_batches(make_runner, ratio, spec, starts):
    runner = make_runner(replay_ratio=ratio, learning_starts=starts, spec=spec, n_batches=40)
    result = runner.run()
    elapsed = result.elapsed_steps
    expected = math.floor(round(ratio * (elapsed - starts), 9))
    assert len(runner.algorithm.optimized) == expected == runner.cycle.n_updates


def test_updates_come_after_the_batches_that_owe_them(make_runner):
    runner = make_runner(replay_ratio=0.25, learning_starts=25)
    runner.run()
    # 5, 10, ... steps beyond 25, of batches of 10: 1.25, 3.75, 6.25, ... updates are due by then.
    counts = [runner.algorithm.optimized.count(step) for step in range(10, 101, 10)]
    assert counts == [0, 0, 1, 2, 3, 2, 3, 2, 3, 2]
    assert runner.algorithm.sampled == list(range(0, 100, 10))


class Slow(ListReplay):
    """Can be drawn from only after some batches."""

    @property
    def n_stored(self):
        return len(self.items) if len(self.added) > 4 else 0

    def sample(self):
        assert self.n_stored
        return super().sample()


def test_no_updates_are_owed_while_nothing_can_be_drawn(make_runner, stack):
    sampler = build_sampler(stack, n_batches=4)
    replay = Slow(sampler.samples, 8)
    runner = make_runner(sampler=sampler, replay=replay, replay_ratio=1, learning_starts=0)
    runner.run()
    assert runner.algorithm.optimized == [step for step in range(50, 101, 10) for _ in range(10)]


def test_the_remainder_is_part_of_the_state(make_runner):
    def run(runner, n_steps):
        runner.n_steps = n_steps
        runner.run()
        return runner.algorithm.optimized

    options = {"replay_ratio": 0.07, "learning_starts": 0}
    whole = run(make_runner(**options), 100)
    first = make_runner(n_steps=200, **options)
    began = run(first, 40)
    second = make_runner(n_steps=200, **options)
    second.load_state(first.state())
    assert [*began, *run(second, 100)] == whole
    assert second.cycle.n_updates == len(whole) == 7


def test_the_replay_is_given_the_buffer_that_the_sampler_writes_into(make_runner):
    runner = make_runner()
    runner.run()
    assert len(runner.replay.added) == 10
    assert all(samples is runner.sampler.samples for samples in runner.replay.added)


# ---------------------------------------------------------------- the log


def test_rows_hold_the_means_over_all_their_updates(make_runner, writer):
    class Seen(Callback):
        def __init__(self):
            self.seen = []

        def after_optimization(self, elapsed_steps, diagnostics):
            self.seen.append(dict(diagnostics))

    seen = Seen()
    make_runner(callbacks=[seen]).run()
    first, second = writer.rows[50], writer.rows[100]
    # 15 updates of the first row, 25 of the second; every other one reports its number.
    assert first["algorithm/number"] == np.mean(range(1, 16, 2))
    assert second["algorithm/number"] == np.mean(range(17, 41, 2))
    assert first["algorithm/array/mean"] == 15
    assert (first["replay/updates"], second["replay/updates"]) == (15, 40)
    assert (first["replay/stored"], second["replay/stored"]) == (50, 100)
    assert seen.seen[:2] == [{}, {}]
    assert seen.seen[2]["number"] == np.mean([1, 3, 5])


def test_the_time_of_drawing_and_inserting_is_not_counted_as_optimising(
    make_runner, writer, monkeypatch
):
    clock = [0.0]

    class Timed(ListReplay):
        def add(self, samples, *, source=None):
            clock[0] += 2
            super().add(samples)

        def sample(self):
            clock[0] += 3
            return super().sample()

    class Working(Recording):
        def optimize_agent(self, elapsed_steps, samples):
            clock[0] += 5
            return super().optimize_agent(elapsed_steps, samples)

    runner = make_runner(Working)
    runner.replay.__class__ = Timed
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    runner.run()
    row = writer.rows[100]
    assert (row["time/inserting_s"], row["time/drawing_s"]) == (10, 75)
    assert row["time/optimising_s"] == 125
    assert row["time/steps_per_second"] == pytest.approx(50 / 210)
    assert [line.split()[0] for line in writer.messages[-1][1].splitlines()[1:4]] == [
        "inserting",
        "drawing",
        "optimising",
    ]


def test_means_do_not_depend_on_when_they_are_read():
    rng = np.random.default_rng(0)
    reports = [
        {name: rng.normal() for name in "abc" if rng.random() < 0.5} | {"d": rng.random(2)}
        for _ in range(1000)
    ]
    whole, parts = UpdateMeans(), UpdateMeans()
    for number, report in enumerate(reports):
        whole.add(report)
        parts.add(report)
        if number % 97 == 0:
            state = parts.state()
            parts = UpdateMeans()
            parts.load_state(state)
            assert dict(parts)
    assert {name: whole[name] for name in "abc"} == {name: parts[name] for name in "abc"}
    assert whole["a"] == pytest.approx(np.mean([one["a"] for one in reports if "a" in one]))
    assert list(whole["d"]) == list(reports[-1]["d"])
    assert len(whole) == 4


# ---------------------------------------------------------------- checkpoints


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpointing, "plot_learning_curve", lambda *arguments: None)
    return RunFolder(tmp_path, "run")


def evaluation(stack, sampler, B=2):
    cages = make_cages(B, Seeds(9))
    stack.callback(cages[0].close)
    return EvalSampler(cages, sampler.handler, allocate_eval_samples(cages), B)


def test_without_a_replay_in_the_checkpoint_it_is_filled_again(make_runner, writer, folder, stack):
    options = {"replay_ratio": 1, "folder": folder, "checkpoint_interval_s": 0.0}
    runner = make_runner(save_replay=False, n_steps=50, **options)
    runner.run()
    _, state = folder.checkpoints.load_newest()
    assert "replay" not in state["parts"]
    del runner
    writer.rows.clear()
    writer.messages.clear()
    resumed = make_runner(save_replay=False, **options)
    resumed.load_state(state)
    resumed.run()
    assert resumed.algorithm.sampled == [50, 60, 70, 80, 90]
    assert resumed.algorithm.optimized == [step for step in (80, 90, 100) for _ in range(10)]
    said = [text for level, text in writer.messages if level == "warning"]
    assert said == [
        "the checkpoint of step 50 has no replay: 20 environment steps are sampled before learning goes on "
        "at step 70"
    ]


def test_the_best_checkpoint_holds_no_replay(make_runner, folder, stack):
    sampler = build_sampler(stack, n_batches=4)
    runner = make_runner(
        sampler=sampler,
        eval_sampler=evaluation(stack, sampler),
        folder=folder,
        checkpoint_interval_s=0.0,
    )
    runner.run()
    _, best = folder.best.load_newest()
    _, newest = folder.checkpoints.load_newest()
    assert "replay" not in best["parts"]
    assert len(newest["parts"]["replay"]["items"]) == 100
    # It can be shown all the same.
    again = build_sampler(stack, n_batches=4)
    runner = make_runner(sampler=again, eval_sampler=evaluation(stack, again))
    runner.load_state(best)


def test_checkpoints_that_take_long_are_rare(make_runner, folder, monkeypatch):
    clock = [0.0]
    saved = []

    def save(step, state):
        clock[0] += 2.0  # seconds
        saved.append(step)

    class Ticking(Callback):
        def after_sampling(self, elapsed_steps, samples, trajs):
            clock[0] += 5.0

    monkeypatch.setattr(checkpointing.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(folder.checkpoints, "save", save)
    make_runner(
        folder=folder,
        checkpoint_interval_s=0.0,
        log_interval_steps=10,
        n_steps=200,
        callbacks=[Ticking()],
    ).run()
    # 40 s after one that took 2 s, as rows are 5 s apart.
    assert saved == [0, 80, 160, 200]


# ---------------------------------------------------------------- samplers


def learn(stack, sampler, replay, algorithm, writer, spec, **options):
    cages = make_cages(1, Seeds(5))
    stack.callback(cages[0].close)
    handler = make_handler()
    handler.agent = algorithm.agent
    options = {"n_steps": 8000, "log_interval_steps": 2000, "target_return": 1.0, **options}
    runner = OffPolicyRunner(
        spec,
        sampler,
        algorithm,
        replay,
        replay_ratio=0.25,
        learning_starts=500,
        logger=Logger([writer]),
        eval_sampler=EvalSampler(cages, handler, allocate_eval_samples(cages), 1),
        **options,
    )
    return runner.run()


LEARNING = BatchSpec(16, 4)


@pytest.mark.parametrize("kind", [BasicSampler, RecurrentSampler, AlternatingSampler])
def test_q_learning_finds_the_way_over_the_lake(stack, writer, kind):
    cages = None
    if kind is AlternatingSampler:
        seeds = Seeds(0)
        cages = [*make_cages(2, seeds, "first"), *make_cages(2, seeds, "second")]
    sampler = build_sampler(stack, spec=LEARNING, kind=kind, n_batches=80, cages=cages)
    algorithm = QLearning(sampler.handler.agent)
    replay = ListReplay(sampler.samples, 64, capacity=5000)
    result = learn(stack, sampler, replay, algorithm, writer, LEARNING, n_steps=20_000)
    assert result.solved
    assert result.elapsed_steps > 2000


def test_environments_in_a_worker_fill_it_too(stack, writer):
    from tabular import make_lake

    cages = [SynchronizedProcessCage([make_lake] * 4, seeds=Seeds(0).spawn("e", 4), n_workers=1)]
    sampler = build_sampler(stack, spec=LEARNING, n_batches=80, cages=cages)
    algorithm = QLearning(sampler.handler.agent)
    replay = ListReplay(sampler.samples, 64, capacity=5000)
    assert learn(stack, sampler, replay, algorithm, writer, LEARNING, n_steps=20_000).solved


def test_policies_in_a_worker_fill_it_too(stack, writer):
    from tabular import TabularWorkerHandler, make_lake

    seeds = Seeds(0).spawn("e", 4)
    cage = stack.enter_context(SynchronizedProcessCage([make_lake] * 4, seeds=seeds, n_workers=1))
    handler, transforms = TabularWorkerHandler(TabularAgent(1)), [FinalObservations()]
    samples = allocate_samples([cage], LEARNING, handler, transforms, noise=True, n_batches=80)
    cage.set_policy(handler.worker_policy())
    sampler = stack.enter_context(
        RolloutSampler(LEARNING, [cage], handler, samples, batch_transforms=transforms)
    )
    replay = ListReplay(samples, 64, capacity=5000)
    algorithm = QLearning(handler.agent)
    assert learn(stack, sampler, replay, algorithm, writer, LEARNING, n_steps=20_000).solved


def build_elsewhere(switching):
    seeds = Seeds(0)
    cages = make_cages(LEARNING.B, seeds)
    handler = make_handler(seed=3)
    transforms = [FinalObservations()]
    samples = allocate_samples(cages, LEARNING, handler, transforms, switching=switching)
    return BasicSampler(LEARNING, cages, handler, samples, batch_transforms=transforms)


def test_sampling_while_learning(stack, writer):
    agent = TabularAgent(1)
    sampler = stack.enter_context(
        AsynchronousSampler(partial(build_elsewhere, True), agent=agent, start_method="fork")
    )
    memory = build_sampler(stack, spec=LEARNING, n_batches=80).samples
    replay = ListReplay(memory, 64, capacity=5000)
    algorithm = QLearning(agent)
    result = learn(stack, sampler, replay, algorithm, writer, LEARNING, n_steps=20_000)
    assert result.solved
    assert all(samples is not memory for samples in replay.added)
    row = writer.rows[2048]
    # The exploration of the agent changes before each batch, and is published with the weights.
    assert 20 < sampler.version <= result.elapsed_steps // LEARNING.size
    assert row["asynchronous/staleness/max"] == 1
    # It acts less and less at random: the action that its table prefers becomes the usual one.
    assert agent.epsilon[0] == np.float32(0.1)
    assert row["training/length/count"] > 0


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("ratio", [0, -1, math.nan, math.inf])
def test_a_ratio_must_be_positive(make_runner, ratio):
    with pytest.raises(ValueError, match=r"replay_ratio: expected a positive number .* got"):
        make_runner(replay_ratio=ratio)


def test_unknown_arguments_are_named(make_runner):
    with pytest.raises(TypeError, match=r"'learning_start'; did you mean learning_starts\?"):
        make_runner(learning_start=3)


def test_a_replay_is_free_again_when_its_run_has_ended(make_runner, stack):
    sampler = build_sampler(stack, n_batches=4)
    replay = ListReplay(sampler.samples, 8)
    runner = make_runner(sampler=sampler, replay=replay)
    with pytest.raises(ValueError, match="replay: expected one that this OffPolicyRunner has to"):
        make_runner(sampler=sampler, replay=replay)
    runner.run()
    make_runner(sampler=sampler, replay=replay).run()
