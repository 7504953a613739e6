"""Native vector environments that are not what they should be, and what else users may ask of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from counting_vector_env import CountingVectorEnv
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from parllel import BatchSpec
from parllel.agents import NumpyHandler, RandomAgent
from parllel.cages import VectorEnvFactory, VectorizedCage
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import run_rows
from parllel.testing.cages.row_reference import make_samples
from parllel_patterns import allocate_samples

N, T, SEEDS = 3, 8, (1, 2, 3)
make_carts = partial(gym.make_vec, "CartPole-v1", vectorization_mode="vector_entry_point")


def made(make: Any, **options: Any) -> VectorizedCage:
    return VectorizedCage(VectorEnvFactory(make), **{"n": N, "seeds": SEEDS, "index": 4, **options})


def bound(make: Any, **options: Any) -> tuple[VectorizedCage, Any]:
    cage = made(make, **options)
    single = make(1)
    single.observation_space = cage.spaces.observation
    single.action_space = cage.spaces.action
    samples = make_samples(single, T, N, info=False)
    cage.set_samples_buffer(samples, slice(0, N))
    return cage, samples


def random_rows(cage: VectorizedCage, rows: int = T) -> None:
    run_rows(cage, rows, "start_random_row")


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        ("NaN", ValueError, r"environment 5 \(CountingVectorEnv\): observation of step.*NaN at 2"),
        ("reward", ValueError, r"environment 5 .*: reward: expected .* finite as float32, got inf"),
        ("flags", TypeError, r"environments 4 to 6 .*: terminated: expected an array of 3 bool"),
        ("shape", ValueError, r"environments 4 to 6 .*: observation of step: expected shape"),
        ("four", TypeError, r"environments 4 to 6 .*: step: expected \(observation, reward, term"),
    ],
)
def test_the_first_episodes_are_checked(fault: str, error: Any, text: str) -> None:
    cage, samples = bound(partial(CountingVectorEnv, fault=fault, at=2))
    with cage:
        with pytest.raises(error, match=text):
            random_rows(cage)
        # What none of them can be known to have done is no sample.
        assert np.isnan(np.asarray(samples.env.reward[1])).all()
        assert not np.isnan(np.asarray(samples.env.reward[0])).any()


@pytest.mark.parametrize("check", ["first_episode", "always"])
def test_checks_end_with_the_first_episodes(check: str) -> None:
    # Of at most eight steps.
    cage, _ = bound(partial(CountingVectorEnv, fault="reward", at=20), check=check)
    with cage:
        random_rows(cage)
        random_rows(cage)
        if check == "always":
            with pytest.raises(ValueError, match="reward: expected a number that is finite"):
                random_rows(cage)
        else:
            random_rows(cage)


class RaisesOnce(CountingEnv):
    """Raises in its third step, and steps afterwards."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 3:
            raise ZeroDivisionError("broken")
        return super().step(action)


def test_none_rests_after_random_steps_that_failed() -> None:
    # The first has taken its only step by then, and the third is frozen from the beginning.
    envs = [CountingEnv([50]), RaisesOnce([50]), CountingEnv([50])]
    cage, samples = bound(lambda n: SyncVectorEnv([partial(_given, env) for env in envs[:n]]))
    with cage:
        cage.start_reset(0)
        cage.finish_row()
        with pytest.raises(ZeroDivisionError, match="broken"):
            cage.start_decorrelation([1, 5, 0])
        cage.start_row(0)
        cage.finish_row()
        assert np.asarray(samples.env.reward[0]).all()


def _given(env: Any) -> Any:
    return env


def test_a_mask_that_is_ignored_is_found_out() -> None:
    cage, _ = bound(partial(CountingVectorEnv, honours=False))
    with cage, pytest.raises(ValueError, match=r"reset ignores options\['reset_mask'\]") as caught:
        random_rows(cage)
    assert "CountingVectorEnv), during reset" in caught.value.__notes__[0]


def test_a_last_observation_that_is_missing_is_found_out() -> None:
    cage, _ = bound(partial(CountingVectorEnv, mode="SameStep", fault="no final_obs"))
    with (
        cage,
        pytest.raises(ValueError, match=r"expected info\['final_obs'\], got an info with \[\]"),
    ):
        random_rows(cage)


def test_what_makes_no_such_environment_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"expected a gymnasium\.vector\.VectorEnv, got .*CountingEnv"
    ):
        made(lambda n: CountingEnv())
    with pytest.raises(
        ValueError, match=r"environments 4 to 6: expected a vector environment that steps 3"
    ):
        made(lambda n: CountingVectorEnv(1))

    def without_mode(n: int) -> Any:
        env = CountingVectorEnv(n)
        env.metadata = {}
        return env

    with pytest.raises(
        ValueError, match=r"expected metadata\['autoreset_mode'\] to be a gymnasium"
    ):
        made(without_mode)
    with pytest.raises(ValueError, match="expected n of at least 1 with a VectorEnvFactory"):
        VectorizedCage(VectorEnvFactory(CountingVectorEnv))
    with pytest.raises(ValueError, match="n: expected the number of factories, 1, or None, got 2"):
        VectorizedCage([CountingEnv], n=2)


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_envpool_without_its_seeds_is_refused() -> None:
    envpool = pytest.importorskip("envpool")

    def make(n: int) -> Any:
        return envpool.make_gymnasium("CartPole-v1", num_envs=n)

    with pytest.raises(ValueError, match="EnvPool is seeded when it is created, so make needs"):
        made(make)
    made(make, seeds=None).close()


def test_attributes_are_those_of_the_vector_environment() -> None:
    with made(make_carts) as cage:
        assert cage.gravity == [9.8] * N
        assert cage.steps == [0] * N  # an array of one for each
        cage.gravity = 1.62
        assert cage.gravity == [1.62] * N
        with pytest.raises(AttributeError, match=r"an attribute 'gravitiy' to set \(similar names"):
            cage.gravitiy = 3.0
        with pytest.raises(AttributeError, match="weather"):
            _ = cage.weather
        observations, _ = cage.env_method("reset", seed=1)[0], None
        assert observations is not None


def test_wrappers_of_vector_environments_stay_around_them() -> None:
    def wrapped(n: int) -> Any:
        return RecordEpisodeStatistics(make_carts(n))

    found = []
    for make in (make_carts, wrapped):
        cage, samples = bound(make)
        with cage:
            for _ in range(8):
                random_rows(cage)
            trajs = [traj.return_ for traj in cage.collect_completed_trajs()]
            found.append((np.array(samples.env.observation).tolist(), trajs))
            if make is wrapped:
                # Those of episodes that were not cut short by a reset of all.
                assert cage.episode_count[0] >= len(trajs)
    assert found[0] == found[1]


def test_environments_in_processes_of_gymnasium_play_the_same() -> None:
    factories = [partial(CountingEnv, (2, 3, 5), random_lengths=True)] * N
    found = []
    # Not by gymnasium's shared memory, which stays until this process ends.
    in_processes = partial(AsyncVectorEnv, shared_memory=False)
    for cls in (SyncVectorEnv, in_processes):
        cage, samples = bound(lambda n, cls=cls: cls(factories[:n], autoreset_mode="SameStep"))
        with cage:
            random_rows(cage)
            assert cage.gravity == [9.8] * N
            cage.gravity = 3.0
            assert cage.gravity == [3.0] * N
            found.append(np.array(samples.env.observation).tolist())
    assert found[0] == found[1]
    with pytest.raises(
        ValueError, match="resets an environment a second time in the step after its reset"
    ):
        made(lambda n: in_processes(factories[:n]))


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_infos_are_stored_as_the_environment_has_them() -> None:
    envpool = pytest.importorskip("envpool")

    def make(n: int, seed: Any) -> Any:
        return envpool.make_gymnasium("CartPole-v1", num_envs=n, seed=seed, num_threads=1)

    with VectorizedCage(VectorEnvFactory(make), n=N, seeds=SEEDS) as cage:
        handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=0))
        samples = allocate_samples(
            [cage], BatchSpec(50, N), handler, env_info={"elapsed_step": 0, "absent": -1.0}
        )
        cage.set_samples_buffer(samples, slice(0, N))
        with pytest.warns(UserWarning, match=r"its info has no \['absent'\]"):
            random_rows(cage, 50)
    info, done = samples.env.env_info, np.asarray(samples.env.done)
    expected = np.zeros(N, int)
    assert done.any()
    for t in range(50):
        expected += 1
        assert np.asarray(info.elapsed_step[t]).tolist() == expected.tolist()
        expected[done[t]] = 0
    assert (np.asarray(info.absent) == -1.0).all()
