"""Infos whose keys come and go: what the buffer holds where there is none."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from parllel.agents import NumpyHandler, RandomAgent
from parllel.buffers import Samples
from parllel.cages import (
    CageInterface,
    ProcessCage,
    SynchronizedProcessCage,
    VectorEnvFactory,
    VectorizedCage,
)
from parllel.testing.cages.cage_hooks import run
from parllel.testing.dummy_envs import CountingEnv
from parllel.types import BatchSpec
from parllel_patterns import allocate_samples

B, T = 3, 4


class Silent(gym.Wrapper[Any, Any, Any, Any]):
    """Leave out everything that the environment informs of."""

    def step(self, action: Any) -> Any:
        """Step."""
        return *self.env.step(action)[:-1], {}


def counted(length: int) -> Any:
    return gym.wrappers.RecordEpisodeStatistics(CountingEnv(length), stats_key="sums")


def together(mode: str) -> VectorizedCage:
    make = VectorEnvFactory(lambda n: SyncVectorEnv(FACTORIES[:n], autoreset_mode=mode))
    return VectorizedCage(make, n=B)


FACTORIES = [partial(counted, length) for length in (2, 3, 9)]
PLACES: dict[str, Any] = {
    "here": lambda: [VectorizedCage(FACTORIES)],
    "together": lambda: [together("NextStep")],
    "together, same step": lambda: [together("SameStep")],
    "processes": lambda: [
        ProcessCage(factory, start_method="fork", index=i) for i, factory in enumerate(FACTORIES)
    ],
    "synchronized": lambda: [
        SynchronizedProcessCage(FACTORIES, n_workers=1, participate=True, start_method="fork")
    ],
}


def sampled(cages: list[CageInterface], batches: int = 1, **options: Any) -> Samples:
    handler = NumpyHandler(RandomAgent(cages[0].spaces.action, seed=0))
    n = sum(cage.n for cage in cages)
    samples = allocate_samples(cages, BatchSpec(T, n), handler, **options)
    lo = 0
    for cage in cages:
        cage.set_samples_buffer(samples, slice(lo, lo + cage.n))
        lo += cage.n
        run(cage, "start_reset")
        for t in [*range(T)] * batches:
            run(cage, "start_row", t)
    return samples


@pytest.mark.parametrize("switching", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_what_there_is_at_the_end_of_an_episode_alone(place: str, switching: bool) -> None:
    cages = PLACES[place]()
    try:
        samples = sampled(
            cages, env_info={"sums": {"r": -1.0, "l": -7}, "step": 0}, switching=switching
        )
        info = samples.env.env_info
        length = np.asarray(info.sums.l)
        assert length.tolist() == [[-7, -7, -7], [2, -7, -7], [-7, 3, -7], [2, -7, -7]]
        reward = np.asarray(samples.env.reward, np.float64)
        assert np.asarray(info.sums.r)[1, 0] == reward[:2, 0].sum()
        assert np.asarray(info.sums.r)[2].tolist() == [-1, reward[:3, 1].sum(), -1]
        assert np.asarray(info.step)[:, 2].tolist() == [1, 2, 3, 4]
    finally:
        for cage in cages:
            cage.close()


def test_values_of_an_earlier_batch_do_not_stay() -> None:
    with VectorizedCage([partial(counted, 6)]) as cage:
        samples = sampled([cage], 2, env_info={"sums": {"l": -7}})
    # Rows 0 to 3 were written twice: the episode ended in the second round.
    assert np.asarray(samples.env.env_info.sums.l)[:, 0].tolist() == [-7, 6, -7, -7]
    with VectorizedCage([partial(counted, 3)]) as cage:
        samples = sampled([cage], 2, env_info={"sums": {"l": -7}})
    assert np.asarray(samples.env.env_info.sums.l)[:, 0].tolist() == [-7, 3, -7, -7]


def test_a_key_that_an_ended_episode_does_not_have_is_told_once() -> None:
    factories = [lambda: CountingEnv(2)] * 2
    expected = r"column 0 \(CountingEnv\): .* no \['halves'\]; .* example .*'half'"
    with VectorizedCage(factories) as cage, pytest.warns(UserWarning, match=expected) as told:
        samples = sampled([cage], 3, env_info={"halves": 0.25})
    assert len(told) == 1
    assert (np.asarray(samples.env.env_info.halves) == 0.25).all()


def test_a_buffer_without_examples_is_refused_where_a_key_is_missing() -> None:
    with VectorizedCage([lambda: Silent(CountingEnv(3))]) as cage:
        handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=0))
        samples = allocate_samples([cage], BatchSpec(T, 1), handler, env_info={"step": 0})
        bare = samples._replace(env=samples.env._replace(env_info_default=None))
        cage.set_samples_buffer(bare, slice(0, 1))
        run(cage, "start_reset")
        with pytest.raises(
            KeyError, match=r"info\['step'\]: missing, and the buffer has no default"
        ):
            cage.start_row(0)


def test_infos_are_checked_in_their_nested_place() -> None:
    class Flat(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            return *self.env.step(action)[:-1], {"episode": 3}

    with (
        VectorizedCage([lambda: Flat(CountingEnv(3))]) as cage,
        pytest.raises(
            TypeError,
            match=r"info\['episode'\]\['l'\]: expected a dict on the way to this key, got 3",
        ),
    ):
        sampled([cage], env_info={"episode": {"l": 0}})
