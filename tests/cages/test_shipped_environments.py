"""Batches of the shipped compiled environments are those of the environments that they equal, bit for bit."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import minigrid  # noqa: F401 (registers its environments)
import numpy as np
import pytest
from minigrid.wrappers import ImgObsWrapper

import parllel.envs.compiled  # noqa: F401 (registers its environments)
from parllel.agents import NumpyHandler, RandomAgent
from parllel.buffers import buffer_leaves
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.cages.stepping.compiled_environments import CompiledEnvironments
from parllel.samplers import BasicSampler
from parllel.types import BatchSpec
from parllel_patterns import allocate_samples

T, B, N_BATCHES = 50, 4, 12

SEEDS = range(10, 10 + B)


def minigrid_images(env_id):
    return ImgObsWrapper(gym.make(env_id))


def without_warnings(env_id):
    return gym.make(env_id, disable_env_checker=True)


def batches(make, cage=VectorizedCage, **options):
    """Return the leaves and the episodes of some batches, and what steps the environments."""
    cages = [cage([make] * B, seeds=SEEDS, reset_automatically=True, **options)]
    handler = NumpyHandler(RandomAgent(cages[0].spaces.action, seed=4))
    samples = allocate_samples(cages, BatchSpec(T, B), handler)
    found = []
    with BasicSampler(BatchSpec(T, B), cages, handler, samples) as sampler:
        kind = type(getattr(cages[0], "_envs", None))
        for _ in range(N_BATCHES):
            batch, trajs = sampler.collect_batch(0)
            leaves = {name: np.array(leaf) for name, leaf in buffer_leaves(batch)}
            found.append((leaves, [traj.as_dict() for traj in trajs]))
    return found, kind


PAIRS = {
    **{
        f"parllel/{env_id}": partial(without_warnings, env_id)
        for env_id in ("CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "Acrobot-v1")
    },
    "parllel/FourRooms-v0": partial(minigrid_images, "MiniGrid-FourRooms-v0"),
    "parllel/Empty-Random-5x5-v0": partial(minigrid_images, "MiniGrid-Empty-Random-5x5-v0"),
}


@pytest.mark.parametrize("env_id", PAIRS)
@pytest.mark.few(2)
def test_batches_are_those_of_the_other_library(env_id):
    ours, kind = batches(partial(gym.make, env_id))
    assert kind is CompiledEnvironments
    check_equal(ours, batches(PAIRS[env_id])[0])


def test_batches_over_workers_are_too():
    ours, _ = batches(
        partial(gym.make, "parllel/CartPole-v1"), SynchronizedProcessCage, n_workers=2
    )
    check_equal(ours, batches(PAIRS["parllel/CartPole-v1"])[0])


def check_equal(ours, theirs):
    for (leaves, trajs), (other, others) in zip(ours, theirs, strict=True):
        assert leaves.keys() == other.keys()
        for name, leaf in leaves.items():
            assert leaf.dtype == other[name].dtype
            np.testing.assert_array_equal(leaf, other[name], err_msg=name)
        assert trajs == others
