"""Vector environments of compiled environments equal gymnasium's of the same environments."""

from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from parllel.cages import VectorizedCage
from parllel.cages.stepping.compiled_environments import CompiledInfoEnvironments
from parllel.envs.compiled import CartPole, MountainCarContinuous
from parllel.vector import VectorEnv

N = 4


def plain(part):
    """Return lists in place of arrays of objects, which numpy does not compare."""
    if isinstance(part, dict):
        return {name: plain(value) for name, value in part.items()}
    if isinstance(part, tuple):
        return tuple(map(plain, part))
    objects = isinstance(part, np.ndarray) and part.dtype == object
    return list(part) if objects else part


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("make", [CartPole, MountainCarContinuous])
@pytest.mark.few(2)
def test_every_row_equals_that_of_a_sync_vector_env(make, mode, parallel):
    reference = gym.vector.SyncVectorEnv([make] * N, autoreset_mode=mode)
    envs, options = [make] * N, {"n_workers": 1}
    if not parallel:
        automatic = mode is AutoresetMode.SAME_STEP
        envs, options = VectorizedCage(envs, infos=True, reset_automatically=automatic), {}
        assert isinstance(envs._envs, CompiledInfoEnvironments)
    with closing(reference), VectorEnv(envs, autoreset_mode=mode, **options) as mine:
        seeds = [3, 5, 7, 9]
        for observation, expected in zip(
            mine.reset(seed=seeds), reference.reset(seed=seeds), strict=True
        ):
            np.testing.assert_equal(observation, expected)
        mine.action_space.seed(1)
        ends = 0
        for _ in range(60):
            # Beyond the bounds of a Box too: both pass actions on as they are.
            action = mine.action_space.sample() * (1 if make is CartPole else 3)
            found, expected = mine.step(action), reference.step(action)
            np.testing.assert_equal(plain(found), plain(expected))
            ended = found[2] | found[3]
            ends += ended.sum()
            if mode is AutoresetMode.DISABLED and ended.any():
                options = {"reset_mask": ended}
                np.testing.assert_equal(
                    mine.reset(options=options), reference.reset(options=options)
                )
        assert ends or make is MountainCarContinuous
