"""Fragments of workers on Ray are copied into a replay, from which an off-policy algorithm learns."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from ray_setup import rollouts
from replay_run import SPEC, build_worker, check_transitions, make_runner

pytestmark = pytest.mark.heavy


@pytest.mark.usefixtures("ray_here")
def test_workers_on_ray_fill_a_replay():
    with ExitStack() as stack, rollouts(build_worker, 2) as (buffer, statistics, workers):
        runner = make_runner(stack, buffer, workers, statistics)
        result = runner.run()
        assert result.elapsed_steps == 50 * SPEC.size
        assert runner.cycle.n_updates == (50 * SPEC.size - 200) // 4
        check_transitions(runner.replay)
