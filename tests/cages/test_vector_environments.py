"""A cage of one native vector environment, beside a cage of the same environments one by one."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from parllel.cages import VectorEnvFactory, VectorizedCage
from parllel.testing.row_reference import make_samples

N, T, SEEDS = 4, 150, (1, 2, 3, 4)
make_cart = partial(gym.make, "CartPole-v1")


def play(factories: Any, **options: Any) -> tuple[Any, ...]:
    """Return what a batch of fixed actions looks like."""
    samples = make_samples(make_cart(), T, N, info=False)
    samples.agent.action[...] = np.random.default_rng(0).integers(0, 2, (T, N))
    with VectorizedCage(factories, seeds=SEEDS, **options) as cage:
        cage.set_samples_buffer(samples, slice(0, N))
        cage.start_reset(0)
        cage.finish_row()
        for t in range(T):
            cage.start_row(t)
            cage.finish_row()
        trajs = [(traj.length, traj.return_) for traj in cage.collect_completed_trajs()]
        final = {
            (one.row, one.column): (one.observation.tolist(), one.truncated)
            for one in cage.collect_final_observations()
        }
        env = samples.env
        rows = [np.array(leaf) for leaf in (env.observation[: T + 1], env.reward, env.done)]
        return [row.tolist() for row in rows], trajs, final


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_samples_are_those_of_single_environments(mode: AutoresetMode) -> None:
    make = VectorEnvFactory(lambda n: SyncVectorEnv([make_cart] * n, autoreset_mode=mode))
    expected = play([make_cart] * N)
    assert len(expected[1]) > N  # over ends of episodes
    assert play(make, n=N) == expected
