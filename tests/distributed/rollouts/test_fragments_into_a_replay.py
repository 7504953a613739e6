"""Fragments of workers in threads are copied into a replay, from which an off-policy algorithm learns."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
from replay_run import SPEC, build_worker, check_transitions, make_runner

from parllel.distributed.rollouts import EpisodeStatistics, LocalRollouts, ReplayBuffer
from parllel.logging import Writer


class Rows(Writer):
    def __init__(self):
        self.rows = {}

    def write(self, step, values):
        self.rows[step] = dict(values)

    def message(self, level, text):
        assert level == "notice", text

    def close(self):
        pass


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def test_workers_in_threads_fill_a_replay(stack):
    rows = Rows()
    buffer = stack.enter_context(ReplayBuffer(2 * SPEC.B))
    statistics = EpisodeStatistics()
    workers = stack.enter_context(LocalRollouts(build_worker, 3, buffer, statistics))
    runner = make_runner(stack, buffer, workers, statistics, writers=[rows])
    result = runner.run()
    # The memory holds 20 batches of 50: rows were overwritten, and fragments came in any order.
    assert result.elapsed_steps == 50 * SPEC.size
    assert runner.cycle.n_updates == (50 * SPEC.size - 200) // 4
    check_transitions(runner.replay)
    last = rows.rows[50 * SPEC.size]
    assert last["training/length/count"] > 0
    assert last["training/length/max"] <= 15
    assert last["asynchronous/staleness/max"] >= 0
    assert 0.5 * 20 * SPEC.size < last["replay/stored"] <= 20 * SPEC.size
    # One version of weights and exploration for each batch.
    assert runner.sampler.version > 40
    np.testing.assert_allclose(runner.sampler.agent.state()["epsilon"], 0.01)


def test_a_replay_without_a_mask_would_draw_padding(stack):
    buffer = stack.enter_context(ReplayBuffer(SPEC.B))
    with pytest.raises(
        ValueError, match=r"replay: expected a buffer with env.valid, .* valid=True"
    ):
        make_runner(stack, buffer, None, None, valid=False)
