"""EnvPool past its own Python, beside EnvPool's own methods."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from parllel.cages import SynchronizedProcessCage, VectorEnvFactory, VectorizedCage
from parllel.cages.native.envpool_steps import envpool_steps
from parllel.testing.cages.cage_hooks import run, run_rows
from parllel.testing.cages.row_reference import make_samples

envpool = pytest.importorskip("envpool", reason="has no wheels for this Python or system")
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered")
N, T, SEEDS = 6, 60, (3, 1, 4, 1, 5, 9)


def make(n: int, seed: Any, task: str = "CartPole-v1") -> Any:
    return envpool.make_gymnasium(task, num_envs=n, seed=seed, num_threads=2)


def actions(n: int, t: int) -> Any:
    return np.random.default_rng(t).integers(0, 2, n)


def test_steps_and_resets_are_those_of_its_own_methods() -> None:
    ours, theirs = make(N, list(SEEDS)), make(N, list(SEEDS))
    steps = envpool_steps(ours)
    assert steps is not None
    ours.reset(), theirs.reset()
    n_ended = 0
    for t in range(200):
        found, expected = steps.step(actions(N, t)), theirs.step(actions(N, t))
        for one, other in zip(found[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(one, other)
        assert (found[4]["elapsed_step"] == expected[4]["elapsed_step"]).all()
        ended = np.flatnonzero(found[2] | found[3])
        if len(ended):
            n_ended += len(ended)
            if t % 2:
                steps.start_reset(ended)
            np.testing.assert_array_equal(steps.reset(ended), theirs.reset(ended)[0])
    assert n_ended > 20


def test_a_reset_that_was_not_asked_for_is_out_of_the_way_of_what_follows() -> None:
    ours, theirs = make(N, list(SEEDS)), make(N, list(SEEDS))
    steps = envpool_steps(ours)
    assert steps is not None
    ours.reset(), theirs.reset()
    which = np.array([1, 4])
    for t in range(3):
        steps.start_reset(which)
        theirs.reset(which)
        np.testing.assert_array_equal(steps.step(actions(N, t))[0], theirs.step(actions(N, t))[0])


def test_an_environment_of_several_players_or_parts_is_stepped_by_its_own_methods() -> None:
    assert envpool_steps(object()) is None


@pytest.mark.parametrize("division", [{"n_workers": 1}, {"n_workers": 2, "participate": True}])
@pytest.mark.few(1)
def test_samples_do_not_depend_on_the_processes(division: dict[str, Any]) -> None:
    found = []
    options = {"n": N, "seeds": SEEDS}
    for cls, more in (
        (VectorizedCage, {}),
        (SynchronizedProcessCage, {"start_method": "forkserver", **division}),
    ):
        with cls(VectorEnvFactory(make), **options, **more) as cage:
            env = make(1, 0)
            samples = make_samples(_Plain(env), T, N, storage="managed", info=False)
            env.close()
            samples.agent.action[...] = np.array([actions(N, t) for t in range(T)])
            cage.set_samples_buffer(samples, slice(0, N))
            run_rows(cage, T)
            trajs = [(traj.length, traj.return_) for traj in cage.collect_completed_trajs()]
            assert len(trajs) > N
            found.append((np.array(samples.env.observation[: T + 1]).tobytes(), trajs))
    assert found[0] == found[1]


class _Plain:
    """The spaces of one environment."""

    def __init__(self, env: Any) -> None:
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space


def test_without_seeds_environments_differ() -> None:
    with VectorizedCage(VectorEnvFactory(make), n=N) as cage:
        env = make(1, 0)
        samples = make_samples(_Plain(env), 2, N, info=False)
        env.close()
        cage.set_samples_buffer(samples, slice(0, N))
        run(cage, "start_reset", 0)
        assert len({tuple(row) for row in np.array(samples.env.observation[0]).tolist()}) == N


def test_a_single_one_is_made_again_for_each_seed() -> None:
    env = VectorEnvFactory(partial(make, task="CartPole-v1"))()
    first, _ = env.reset(seed=5)
    again, _ = env.reset(seed=5)
    other, _ = env.reset(seed=6)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    observation, reward, terminated, truncated, info = env.step(1)
    assert env.observation_space.contains(observation)
    assert (reward, terminated, truncated) == (1.0, False, False)
    assert info["elapsed_step"] == 1
    env.close()
