"""Both schedules make the same fragments, which are those that a test can cut itself."""

from __future__ import annotations

import threading
import time
from functools import partial

import numpy as np
import pytest
from weighted_agent import WeightedAgent, weighted
from worker_setup import (
    LENGTH,
    SEED,
    B,
    T,
    collect,
    cut_batches,
    digests,
    factories,
    make_cages,
    make_handler,
    make_sampler,
    ready,
    rows,
)

from parllel.distributed.rollouts import (
    EpisodeStatistics,
    FragmentSender,
    ReplayBuffer,
    RolloutWorker,
)
from parllel.distributed.rollouts.fragments.fragment_noise import FragmentNoise
from parllel.errors import ClosedError, WorkerTimeoutError
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv

WHOLE = 5  # fragments of each environment that are compared


def expected(per_environment, *, recurrent=False):
    return cut_batches(make_sampler(recurrent=recurrent), per_environment)


# Each row: kind of cages, batch size, seconds to wait, rows of the samples.
READY = [
    ("vectorized", 4, 0.01, 1),
    ("single", 1, 0.0, 3),
    ("single", 3, 0.01, 2),
    ("process", 2, 0.005, 2),
    ("workers", 4, 0.02, 7),
]


@pytest.mark.parametrize(("kind", "batch_size", "max_wait_s", "n_rows"), READY)
def test_any_readiness_gives_the_fragments_of_a_sampler(kind, batch_size, max_wait_s, n_rows):
    schedule = ready(make_cages(kind), rows=n_rows, batch_size=batch_size, max_wait_s=max_wait_s)
    # Environments of one worker need not keep step: there may be more of one than of another.
    fragments = collect(schedule, 4 * WHOLE * LENGTH * B)
    counts = [sum(f.environment == b for f in fragments) for b in range(B)]
    enough = min(*counts, WHOLE)
    assert enough >= 3
    assert digests(fragments, enough) == {
        key: digest for key, digest in expected(WHOLE).items() if key[2] < enough
    }


def test_rows_give_the_fragments_of_a_sampler():
    found = collect(rows(), WHOLE * LENGTH * B + T * B)
    assert digests(found, WHOLE) == expected(WHOLE)


@pytest.mark.parametrize("layout", ["float64", "dict"])
def test_last_observations_have_the_types_of_the_others(layout):
    """Both layouts have leaves that are stored in narrower types than environments return."""
    makes = factories(layout)
    found = collect(rows(makes=makes), 12 * LENGTH * B)
    others = collect(ready(make_cages("single", makes=makes)), 12 * LENGTH * B)
    assert any(fragment.final_observations for fragment in found)
    assert digests(found, 3) == digests(others, 3)


@pytest.mark.parametrize("schedule", ["rows", "ready"])
def test_a_recurrent_agent(schedule):
    if schedule == "rows":
        made = rows(recurrent=True)
    else:
        made = ready(make_cages("single"), make_handler(recurrent=True), batch_size=2)
    found = collect(made, 5 * T * B, length=T)
    enough = 3
    assert digests(found, enough) == expected(enough, recurrent=True)


def test_noise_is_not_repeated():
    noise = FragmentNoise(make_handler(), SEED, 50)
    places = [(e, p, s, r) for e in range(2) for p in range(2) for s in range(2) for r in range(50)]
    cells = noise.of_steps(places).reshape(8, 50)
    assert len({tuple(row) for row in cells.tolist()}) == 8
    # By batches they are the same, over the ends of fragments too.
    columns = noise.of_batch(70, [(0, 0, 0, 10), (1, 1, 0, 0)])
    assert columns[:40, 0].tolist() == cells[0, 10:].tolist()
    assert columns[40:, 0].tolist() == cells[1, :30].tolist()
    assert columns[:50, 1].tolist() == cells[6].tolist()


@pytest.mark.parametrize("make", [rows, lambda: ready(make_cages("single"), batch_size=2)])
def test_records_and_episodes_of_all_steps(make):
    records, statistics = [], EpisodeStatistics()
    fragments = collect(make(), 40, progress_handler=records.append, statistics=statistics)
    by_env = {b: [r for r in records if r.environment == b] for b in range(B)}
    assert len(records) >= 40
    for b, steps in by_env.items():
        actions = np.concatenate([f.agent.action for f in fragments if f.environment == b])
        assert [int(r.action) for r in steps][: len(actions)] == actions.tolist()
        assert all(r.version == 0 for r in steps)
        assert all((r.final_observation is not None) == bool(r.truncated) for r in steps)
    ended = sum(bool(r.terminated or r.truncated) for r in records)
    assert len(statistics.drain()) == ended > 0


# ---------------------------------------------------------------------- weights


@pytest.mark.parametrize("schedule", ["rows", "ready"])
def test_steps_are_stamped_with_the_weights_that_chose_them(schedule):
    handler = weighted()
    made = (
        rows(handler) if schedule == "rows" else ready(make_cages("single"), handler, batch_size=2)
    )
    versions = []

    def progress(step):
        # The agent says its weights in each action's info.
        assert int(step.agent_info.weight) == 10 * step.version
        versions.append(step.version)
        if len(versions) in (20, 60):
            version = step.version + 3
            assert worker.load_weights(WeightedAgent.weights(10 * version), version)
            assert not worker.load_weights(WeightedAgent.weights(1), version - 1)

    worker = RolloutWorker(made, fragment_length=LENGTH, seed=1, progress_handler=progress)
    with worker:
        worker.run(150)
        assert worker.version == 6
        with pytest.raises(
            ValueError, match=r"the worker's agent, .*, got \[\('model.weight', \(3,\)"
        ):
            worker.load_weights({"model": {"weight": np.zeros(3)}}, 9)
        worker.run(1)
        assert worker.version == 6
    assert sorted(set(versions)) == [0, 3, 6]


@pytest.mark.parametrize("schedule", ["rows", "ready"])
@pytest.mark.parametrize("max_staleness", [0, 2, None])
def test_what_is_too_old_is_never_sent(schedule, max_staleness):
    handler = weighted()
    made = rows(handler) if schedule == "rows" else ready(make_cages("single"), handler)
    count = 0

    def progress(step):
        nonlocal count
        count += 1
        if count % 10 == 0:
            worker.load_weights(WeightedAgent.weights(count), count // 10)

    with ReplayBuffer(1000) as buffer:
        sender = FragmentSender(buffer, max_staleness=max_staleness)
        worker = RolloutWorker(
            made, fragment_length=12, seed=1, sender=sender, progress_handler=progress
        )
        with sender, worker:
            worker.run(400)
            assert sender.flush(10)
            counts = sender.ledger.counts()
            sender.ledger.check()
            fragments = buffer.fetch(max(buffer.prepared(), 1), 0.1)
    for fragment in fragments:
        spread = fragment.newest_version - fragment.oldest_version
        assert max_staleness is None or spread <= max_staleness
    assert (counts["stale"] > 0) == (max_staleness is not None)
    assert counts["accepted"] == len(fragments)


# ---------------------------------------------------------------------- errors and ends


@pytest.mark.parametrize("make", [rows, lambda: ready(make_cages("process"), batch_size=2)])
def test_what_a_progress_handler_raises_ends_the_worker(make):
    def progress(step):
        if worker.n_steps > 20:
            raise KeyError("the handler of the test")

    with ReplayBuffer(100) as buffer, FragmentSender(buffer) as sender:
        worker = RolloutWorker(
            make(), fragment_length=4, seed=1, sender=sender, progress_handler=progress
        )
        with pytest.raises(KeyError, match="the handler of the test") as caught:
            worker.run(1000)
        assert caught.traceback[-1].name == "progress"
        with pytest.raises(ClosedError, match="the worker is closed"):
            worker.run(1)
        assert sender.flush(10)
        # What was whole before that was sent.
        assert buffer.prepared() > 0
        sender.ledger.check()
    worker.close()


def test_what_an_environment_raises_comes_out_of_run():
    sources = make_cages("process", makes=[partial(FaultyEnv, "step", number=5)] * 2)
    worker = RolloutWorker(ready(sources), fragment_length=4, seed=1)
    with pytest.raises(DummyFaultError, match="step number 5"):
        worker.run(1000)
    worker.close()


def test_an_environment_of_a_plain_cage_that_hangs_ends_the_worker():
    makes = [CountingEnv, partial(FaultyEnv, "step", "hang", number=3)]
    schedule = ready(make_cages("process", makes=makes), batch_size=1, timeout_s=2.0)
    worker = RolloutWorker(schedule, fragment_length=4, seed=1)
    with pytest.raises(WorkerTimeoutError, match=r"environment 1 .* within 2 s during a step"):
        worker.run()
    worker.close()


@pytest.mark.parametrize("make", [rows, lambda: ready(make_cages("process"), batch_size=2)])
def test_another_thread_stops_a_run(make):
    with RolloutWorker(make(), fragment_length=4, seed=1) as worker:

        def stop():
            # However long its processes take to start.
            while worker.n_steps == 0:
                time.sleep(0.01)
            worker.stop()

        thread = threading.Thread(target=stop)
        thread.start()
        assert worker.run() > 0
        thread.join()
        # It holds for one run: the next is a new one.
        assert worker.run(10) >= 10
        worker.stop()
        assert worker.run() == 0


def test_a_worker_that_is_run_again_and_again_can_be_closed():
    ended, began = [], threading.Event()

    def run():
        try:
            while True:
                worker.run(1)
                began.set()
        except ClosedError as error:
            ended.append(str(error))

    worker = RolloutWorker(ready(make_cages("single")), fragment_length=4, seed=1)
    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(20)
    # The run that is stopped may be followed by another before this one has its turn.
    worker.close(timeout_s=20)
    thread.join(20)
    assert ended == ["RolloutWorker: run: the worker is closed"]


def test_closing_may_wait_without_limit():
    with RolloutWorker(ready(make_cages("single")), fragment_length=4, seed=1) as worker:
        worker.close(timeout_s=float("inf"))
        assert worker.status().phase == "ended"


def test_a_full_queue_holds_environments_up_until_it_is_stopped():
    with ReplayBuffer(2) as buffer:
        sender = FragmentSender(buffer, capacity=3)
        with (
            sender,
            RolloutWorker(
                ready(make_cages("process"), batch_size=2), fragment_length=2, seed=1, sender=sender
            ) as worker,
        ):
            thread = threading.Thread(target=worker.run)
            thread.start()
            deadline = time.monotonic() + 20
            while sender.queued < 3 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.3)
            steps, queued = worker.n_steps, sender.queued
            time.sleep(0.3)
            assert (worker.n_steps, sender.queued) == (steps, queued)
            assert queued <= 3 + B
            while worker.n_steps == steps and time.monotonic() < deadline:
                buffer.fetch(2, 0.1)
            assert worker.n_steps > steps
            worker.stop()
            thread.join(10)
            assert not thread.is_alive()
            sender.ledger.check()
            sender.close(timeout_s=0.1)
            sender.ledger.check()
            assert sender.ledger.counts()["queued"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"batch_size": B + 1},
            f"batch_size: expected 1 to {B}, the number of environments, got 5",
        ),
        ({"batch_size": -1}, "batch_size: expected 1 to 4"),
        ({"max_wait_s": -0.1}, "max_wait_s: expected 0 or more seconds, got -0.1"),
    ],
)
def test_arguments_that_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        ready(make_cages("single"), **change)


def test_parts_that_do_not_fit():
    with pytest.raises(
        ValueError, match="fragment_length: expected 6, the number of rows in the batches"
    ):
        RolloutWorker(rows(recurrent=True), fragment_length=5, seed=1)
    worker = RolloutWorker(rows(), fragment_length=5, seed=1)
    with worker, pytest.raises(ValueError, match="n_steps: expected at least 1"):
        worker.run(0)
