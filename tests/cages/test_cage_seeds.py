from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from cage_makers import MAKERS, bind
from gymnasium import spaces

from parllel.cages import Cage
from parllel.seeding import Seeds
from parllel.testing import CountingEnv
from parllel.testing.cages.row_reference import plain, seeds_of
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv

T = 8


class DiceEnv(gym.Env[Any, Any]):
    """Observes 16 draws of its generator; all of its kind share one action space."""

    observation_space = spaces.Box(0, 2**20, (16,), np.float32)
    action_space = spaces.Discrete(2**20)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._roll(), {"half": 0, "step": 0}

    def step(self, action: Any) -> Any:
        return self._roll(), 0.0, False, False, {"half": 0, "step": 0}

    def _roll(self) -> Any:
        return self.np_random.integers(2**20, size=16).astype(np.float32)


def sample(cages: list[Any]) -> list[tuple[bytes, list[int]]]:
    """Return the observations and the random actions of each cage, stepped in turn."""
    bound = [bind(cage, DiceEnv(), T) for cage in cages]
    for cage in cages:
        cage.start_reset(0)
    for cage in cages:
        cage.finish_row()
    for t in range(T):
        for cage in cages:
            cage.start_random_row(t)
        for cage in cages:
            cage.finish_row()
    return [
        (
            b"".join(plain(samples.env.observation, t, 0).tobytes() for t in range(T + 1)),
            [int(plain(samples.agent.action, t, 0)) for t in range(T)],
        )
        for samples in bound
    ]


def run(kind: str, seeds: list[Any]) -> list[tuple[bytes, list[int]]]:
    cages = [MAKERS[kind](DiceEnv, seed=seed, index=i) for i, seed in enumerate(seeds)]
    try:
        return sample(cages)
    finally:
        for cage in cages:
            cage.close()


def test_same_seeds_give_the_same_samples_in_every_place() -> None:
    seeds = [*Seeds(5).spawn("environments", 3), 5, np.int64(6)]
    here = run("Cage", seeds)
    assert here == run("ProcessCage", seeds)
    assert here == run("Cage", seeds)


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_environments_of_one_sequence_never_overlap(kind: str) -> None:
    draws: set[bytes] = set()
    actions: set[int] = set()
    for observations, taken in run(kind, list(np.random.SeedSequence(5).spawn(4))):
        rows = np.frombuffer(observations, np.float32).reshape(T + 1, 16)
        draws |= {row[k : k + 4].tobytes() for row in rows for k in range(13)}
        actions |= set(taken)
    assert len(draws) == 4 * (T + 1) * 13
    assert len(actions) == 4 * T


def test_seeds_of_ten_thousand_environments_differ() -> None:
    words = [seeds_of(child) for child in np.random.SeedSequence(0).spawn(10_000)]
    # Neither may be the same; of 2 * 10^4 random words of 32 bits a pair may, by chance.
    assert len(set(words)) == len(words)
    assert len({word for pair in words for word in pair}) >= 20_000 - 2


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_without_a_seed_every_cage_draws_its_own(kind: str) -> None:
    (one, _), (other, _) = run(kind, [None, None])
    assert one != other


def test_a_first_reset_that_failed_is_tried_again_with_its_seed() -> None:
    with Cage(partial(FaultyEnv, "reset"), seed=7) as cage:
        with pytest.raises(DummyFaultError, match="reset number 1"):
            cage.reset_async()
        cage.reset_async()
        found = cage.await_step().observation
    np.testing.assert_array_equal(found, CountingEnv().reset(seed=seeds_of(7)[0])[0])


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_only_the_first_reset_is_seeded(kind: str) -> None:
    with MAKERS[kind](partial(CountingEnv, 1), seed=4) as cage:
        marks = []
        for _ in range(3):
            cage.reset_async()
            marks.append(cage.await_step().observation.tolist())
        env = CountingEnv(1)
        first, _ = env.reset(seed=seeds_of(4)[0])
        assert marks == [[first[0], k, 0.0] for k in range(3)]


@pytest.mark.parametrize("kind", sorted(MAKERS))
@pytest.mark.parametrize("all_envs", [True, False])
def test_waiting_draws_no_more_than_a_plain_loop(kind: str, all_envs: bool) -> None:
    """A reset ahead of time is the next reset, whoever asks for it."""
    factory = partial(CountingEnv, range(1, 100), random_lengths=True)
    env = factory()
    env.reset(seed=seeds_of(4)[0])
    with MAKERS[kind](factory, seed=4, reset_automatically=False) as cage:
        bind(cage, factory(), 100)
        lengths, expected = [], []
        for k in range(4):
            cage.start_reset(0, all_envs=all_envs)
            cage.finish_row()
            t = 0
            while not cage.needs_reset[0]:
                cage.start_row(t)
                cage.finish_row()
                t += 1
            lengths.append(t)
            expected.append(next(i for i in itertools.count(1) if env.step(0)[2]))
            if k < 3:
                env.reset()
    assert lengths == expected
    assert len(set(lengths)) > 2
