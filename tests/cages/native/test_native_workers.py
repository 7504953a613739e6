"""Native vector environments in workers, one for each group of each process."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from parllel.buffers import buffer_leaves
from parllel.cages import (
    Cage,
    ProcessCage,
    SynchronizedProcessCage,
    VectorEnvFactory,
    VectorizedCage,
)
from parllel.errors import WorkerError
from parllel.system.processes.process_table import process_runs
from parllel.testing.cages.cage_faults_contract import wait_until_gone
from parllel.testing.cages.cage_hooks import run, run_groups, run_rows
from parllel.testing.cages.row_reference import make_samples

N, T = 5, 40
SEEDS = (3, 1, 4, 1, 5)
make_cart = partial(gym.make, "CartPole-v1")


def many(n: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> SyncVectorEnv:
    return SyncVectorEnv([make_cart] * n, autoreset_mode=mode)


def factory(**options: Any) -> VectorEnvFactory:
    return VectorEnvFactory(partial(many, **options))


def workers(makes: Any = None, **options: Any) -> SynchronizedProcessCage:
    """Return a cage whose samples are equal in every division."""
    options = {"n_workers": 2, "n": N, "seeds": SEEDS, "timeout_s": 20.0, **options}
    return SynchronizedProcessCage(makes or factory(), **{"start_method": "fork", **options})


def bound(cage: Any, B: int = N, T: int = T) -> Any:
    samples = make_samples(make_cart(), T, B, storage="managed", info=False)
    samples.agent.action[...] = np.random.default_rng(0).integers(0, 2, (T, B))
    cage.set_samples_buffer(samples, slice(0, B))
    return samples


def everything(cage: Any) -> list[Any]:
    """Return all that a batch of fixed and random actions leaves."""
    samples = bound(cage)
    run_groups(cage, "start_reset", 0)
    for t in range(T):
        if not cage.reset_automatically and t % 10 == 9:
            run_groups(cage, "start_reset", t, all_envs=False)
        run_groups(cage, "start_random_row" if t % 3 == 1 else "start_row", t)
    found: list[Any] = [
        (path, np.array(leaf[: T + ("observation" in path)]).tobytes())
        for path, leaf in buffer_leaves(samples.env)
    ]
    found += [(traj.length, traj.return_) for traj in cage.collect_completed_trajs()]
    final = sorted(cage.collect_final_observations(), key=lambda one: (one.column, one.row))
    assert len(final) > N
    found += [(one.row, one.column, one.observation.tolist(), one.truncated) for one in final]
    found.append(cage.needs_reset.tolist())
    return found


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.few(3)
def test_samples_do_not_depend_on_the_processes(mode: AutoresetMode, automatic: bool) -> None:
    options: dict[str, Any] = {"n": N, "seeds": SEEDS, "reset_automatically": automatic}
    # One that waits is stepped all the same, and so draws more from its generator than a single one would.
    makes = [make_cart] * N if automatic else factory(mode=mode)
    with VectorizedCage(makes, **options) as cage:
        expected = everything(cage)
    for division in (
        {"n_workers": 1},
        {"n_workers": 2, "n_groups": 2},
        {"n_workers": 2, "participate": True, "n_main": 2},
    ):
        with workers(factory(mode=mode), reset_automatically=automatic, **division) as cage:
            assert everything(cage) == expected


def make_registered(n: int) -> Any:
    return gym.make_vec("OnlyHere-v0", num_envs=n, vectorization_mode="vector_entry_point")


def test_what_the_script_has_registered_is_known_in_workers() -> None:
    gym.register("OnlyHere-v0", vector_entry_point=lambda num_envs: many(num_envs))
    try:
        with workers(VectorEnvFactory(make_registered), start_method="forkserver") as cage:
            assert cage.spaces.observation == make_cart().observation_space
    finally:
        del gym.registry["OnlyHere-v0"]


def test_attributes_and_methods_are_lists_by_column() -> None:
    with workers(participate=True) as cage:
        assert cage.gravity == [9.8] * N
        cage.gravity = 3.0
        assert cage.gravity == [3.0] * N
        with pytest.raises(AttributeError, match="gravty"):
            cage.gravty = 1.0


class RaisesAtThree(SyncVectorEnv):
    """Raises in its third step, where there are two environments in it."""

    steps = 0

    def step(self, actions: Any) -> Any:
        self.steps += 1
        if self.steps == 3 and self.num_envs == 2:
            raise ZeroDivisionError("broken")
        return super().step(actions)


def test_what_a_native_environment_raises_names_the_columns_of_its_worker() -> None:
    cage = workers(VectorEnvFactory(lambda n: RaisesAtThree([make_cart] * n)))
    bound(cage)
    run(cage, "start_reset", 0)
    run(cage, "start_row", 0)
    run(cage, "start_row", 1)
    with pytest.raises(ZeroDivisionError, match="broken") as raised:
        run(cage, "start_row", 2)
    notes = "\n".join(raised.value.__notes__)
    assert "in environments 3 to 4 (CartPole-v1), during step" in notes
    cage.close()


def test_a_killed_worker_is_named_by_its_columns() -> None:
    cage = workers()
    bound(cage)
    run(cage, "start_reset", 0)
    first, second = cage.pids
    os.kill(second, signal.SIGKILL)
    wait_until_gone(second)
    with pytest.raises(WorkerError, match=r"worker 1 \(environments 3-4 of CartPole-v1\)"):
        run(cage, "start_row", 0)
    wait_until_gone(first)
    assert not process_runs(first)
    cage.close()


def test_what_cannot_be_made_in_a_worker_is_raised_with_its_columns() -> None:
    def make(n: int) -> Any:
        return many(n + 1)

    # Of three environments or of two: either worker may report first.
    with pytest.raises(ValueError, match=r"expected a vector environment that steps [23]"):
        _ = workers(VectorEnvFactory(make)).spaces


@pytest.mark.parametrize("made", [Cage, partial(ProcessCage, start_method="fork", timeout_s=20.0)])
def test_a_cage_of_one_takes_it_as_a_function(made: Any) -> None:
    found = []
    for makes in (make_cart, factory()):
        with made(makes, seed=7) as cage:
            samples = bound(cage, 1)
            run_rows(cage, T)
            found.append([np.array(leaf[:T]).tobytes() for _, leaf in buffer_leaves(samples.env)])
            assert len(cage.collect_completed_trajs()) > 0
    assert found[0] == found[1]


def test_cages_say_what_makes_one_of_their_environments() -> None:
    with workers() as cage:
        assert len(cage.env_factories) == N
        env = cage.env_factories[2]()
        assert isinstance(env, gym.Env)
        assert env.observation_space == cage.spaces.observation
        env.close()


def test_states_go_from_one_division_to_another() -> None:
    with workers(n_workers=1) as cage:
        bound(cage)
        run_rows(cage, 20)
        states = cage.environment_states()
        expected = bound(cage)
        for t in range(T):
            run(cage, "start_row", t)
    with workers(n_workers=2, n_groups=2, participate=True) as other:
        found = bound(other)
        other.load_environment_states(states, 0)
        for t in range(T):
            run_groups(other, "start_row", t)
    for field in ("reward", "terminated", "truncated"):
        assert np.array_equal(np.array(getattr(found.env, field)), getattr(expected.env, field))
    assert (
        np.array(found.env.observation[1 : T + 1]) == np.array(expected.env.observation[1 : T + 1])
    ).all()


def test_a_vector_environment_in_place_of_an_environment_is_refused() -> None:
    with pytest.raises(TypeError, match="got the vector environment"):
        Cage(partial(many, 1))


def test_a_number_of_environments_is_needed() -> None:
    with pytest.raises(ValueError, match="expected n of at least 1 with a VectorEnvFactory"):
        SynchronizedProcessCage(factory(), n_workers=1)
    with pytest.raises(ValueError, match="n: expected the number of factories, 2, or None, got 3"):
        SynchronizedProcessCage([make_cart] * 2, n=3, n_workers=1)
