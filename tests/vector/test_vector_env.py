"""What gymnasium's documentation promises of vector environments, in every placement."""

from __future__ import annotations

import multiprocessing
import time
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    CustomSpaceError,
    NoAsyncCallError,
    ResetNeeded,
)
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics
from vector_placements import PLACEMENTS

from parllel.cages import (
    Cage,
    ProcessCage,
    SynchronizedProcessCage,
    VectorEnvFactory,
    VectorizedCage,
)
from parllel.errors import WorkerDiedError
from parllel.testing import CountingEnv
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv
from parllel.vector import VectorEnv, make_vec

N = 4


class SlowEnv(CountingEnv):
    def step(self, action: Any) -> Any:
        time.sleep(0.3)
        return super().step(action)


class OfAnySpace(CountingEnv):
    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        super().__init__()
        self.observation_space = observation_space or self.observation_space
        self.action_space = action_space or self.action_space


@pytest.fixture(params=PLACEMENTS)
def placement(request: pytest.FixtureRequest) -> dict[str, Any]:
    options: dict[str, Any] = PLACEMENTS[request.param]
    return options


def vector_env(placement: dict[str, Any], make: Any = CountingEnv, **options: Any) -> VectorEnv:
    return VectorEnv([make] * N, **placement, **options)


ACTIONS = np.ones(N, int)


def test_calls_have_an_order(placement: dict[str, Any]) -> None:
    with vector_env(placement) as env:
        with pytest.raises(ResetNeeded, match=r"call reset\(\) first"):
            env.step(ACTIONS)
        with pytest.raises(ResetNeeded, match="all environments before one with a reset_mask"):
            env.reset(options={"reset_mask": np.arange(N) == 1})
        for wait in (env.step_wait, env.reset_wait):
            with pytest.raises(NoAsyncCallError, match=r"expected .*_async"):
                wait()
        env.reset_async(seed=1)
        with pytest.raises(NoAsyncCallError, match="expected step_async"):
            env.step_wait()
        env.reset_wait()
        env.step_async(ACTIONS)
        for call in (
            lambda: env.step_async(ACTIONS),
            env.reset,
            lambda: env.call("gravity"),
            lambda: env.set_attr("gravity", 1.0),
        ):
            with pytest.raises(AlreadyPendingCallError, match=r"call step_wait\(\) first"):
                call()
        # None of these changed the step.
        assert env.step_wait()[1].tolist() == [1.125] * N
    for call in (
        lambda: env.step(ACTIONS),
        env.reset,
        env.step_wait,
        lambda: env.get_attr("gravity"),
    ):
        with pytest.raises(ClosedEnvironmentError, match="was closed"):
            call()
    env.close()


def test_a_wait_may_end_early(placement: dict[str, Any]) -> None:
    with vector_env(placement, SlowEnv) as env:
        env.reset(seed=0)
        env.step_async(ACTIONS)
        if placement.get("n_workers"):
            with pytest.raises(multiprocessing.TimeoutError, match=r"not finished after 0\.01 s"):
                env.step_wait(timeout=0.01)
        assert env.step_wait(timeout=10)[1].tolist() == [1.125] * N
        env.step_async(ACTIONS)
        env.close(terminate=True)


@pytest.mark.parametrize("copy", [True, False])
def test_copies_and_views(placement: dict[str, Any], copy: bool) -> None:
    with vector_env(placement, copy=copy) as env:
        env.reset(seed=0)
        first, reward, *_ = env.step(ACTIONS)
        kept, rewards = first.copy(), reward.copy()
        second = env.step(ACTIONS)[0]
        # Valid until the step after the next, so that a loop can compare it with the next observation.
        np.testing.assert_array_equal(first, kept)
        assert not np.array_equal(first, second)
        env.step(ACTIONS)
        assert np.array_equal(first, kept) is copy
        np.testing.assert_array_equal(reward, rewards)


def test_attributes_and_methods(placement: dict[str, Any]) -> None:
    with vector_env(placement, lambda: gym.wrappers.TimeLimit(CountingEnv(), 7)) as env:
        assert env.get_attr("_max_episode_steps") == (7,) * N
        env.set_attr("gravity", [1.0, 2.0, 3.0, 4.0])
        assert env.get_attr("gravity") == (1.0, 2.0, 3.0, 4.0)
        env.set_attr("gravity", (4.0, 3.0, 2.0, 1.0))
        assert env.call("get_wrapper_attr", "gravity") == (4.0, 3.0, 2.0, 1.0)
        env.set_attr("gravity", 5.5)
        assert env.call("get_wrapper_attr", name="gravity") == (5.5,) * N
        with pytest.raises(ValueError, match="gravity: expected a list or tuple of num_envs=4"):
            env.set_attr("gravity", [1.0])
        with pytest.raises(AttributeError, match="gravitty"):
            env.get_attr("gravitty")
        for name in ("reset", "step", "close"):
            with pytest.raises(ValueError, match=f"own {name}"):
                env.call(name)
            with pytest.raises(ValueError, match=f"own {name}"):
                env.set_attr(name, None)
        env.reset(seed=[3, 4, 5, 6])
        assert env.np_random_seed == (3, 4, 5, 6)
        assert len(env.np_random) == N


def test_description(placement: dict[str, Any]) -> None:
    for mode in AutoresetMode:
        with vector_env(placement, autoreset_mode=mode) as env:
            reference = SyncVectorEnv([CountingEnv] * N, autoreset_mode=mode)
            assert env.metadata == reference.metadata
            assert env.metadata["autoreset_mode"] is mode
            assert env.render_mode == reference.render_mode == "rgb_array"
            assert env.num_envs == N
            assert repr(env) == f"VectorEnv(num_envs={N})"
            assert env.unwrapped is env
    assert "autoreset_mode" not in CountingEnv.metadata


def test_samples_of_spaces_continue_those_of_the_first_environment(
    placement: dict[str, Any],
) -> None:
    def make() -> Any:
        env = CountingEnv(action_space=spaces.Dict(a=spaces.Discrete(9), b=spaces.Box(0, 1, (2,))))
        env.action_space.seed(5)
        env.action_space.sample()
        return env

    reference = SyncVectorEnv([make] * N)
    with vector_env(placement, make) as env:
        for _ in range(3):
            found, expected = env.action_space.sample(), reference.action_space.sample()
            for key in ("a", "b"):
                np.testing.assert_array_equal(found[key], expected[key])


def test_pictures(placement: dict[str, Any]) -> None:
    make = partial(gym.make, "CartPole-v1", render_mode="rgb_array")
    with vector_env(placement, make) as env:
        env.reset(seed=0)
        frames = env.render()
        assert [frame.shape for frame in frames] == [(400, 600, 3)] * N
        assert all(frame.any() for frame in frames)


def test_masks_are_checked(placement: dict[str, Any]) -> None:
    with vector_env(placement) as env:
        env.reset(seed=0)
        for error, match, mask in (
            (TypeError, "expected a numpy array", [True] * N),
            (ValueError, r"expected shape \(4,\)", np.ones(N + 1, bool)),
            (TypeError, "expected dtype bool", np.ones(N, int)),
            (ValueError, "expected at least one True", np.zeros(N, bool)),
        ):
            with pytest.raises(error, match=match):
                env.reset(options={"reset_mask": mask})
        with pytest.raises(ValueError, match="num_envs=4 seeds, got 1"):
            env.reset(seed=[1])
        mask = np.array([False, True, False, False])
        options = {"reset_mask": mask, "other": 1}
        env.reset(seed=9, options=options)
        # The caller's own dict and mask are not changed.
        assert options == {"reset_mask": mask, "other": 1}


def test_without_automatic_resets_a_missing_one_is_an_error(placement: dict[str, Any]) -> None:
    make = partial(CountingEnv, 2)
    with vector_env(placement, make, autoreset_mode=AutoresetMode.DISABLED) as env:
        env.reset(seed=0)
        env.step(ACTIONS)
        ended = env.step(ACTIONS)[2]
        assert ended.all()
        mask = np.array([True, False, True, True])
        env.reset(options={"reset_mask": mask})
        with pytest.raises(ResetNeeded, match=r"environments \[1\] have ended"):
            env.step(ACTIONS)
        env.reset(options={"reset_mask": ~mask})
        assert env.step(ACTIONS)[1].tolist() == [1.125] * N


def test_actions_of_a_wrong_shape_step_nothing(placement: dict[str, Any]) -> None:
    with vector_env(placement) as env:
        env.reset(seed=0)
        for actions in (1, np.ones(N + 1, int), np.ones((N, 1), int)):
            with pytest.raises(ValueError, match=r"actions: expected shape \(4,\)"):
                env.step(actions)
        assert env.step([1, 1, 1, 1])[1].tolist() == [1.125] * N


@pytest.mark.parametrize("phase", ["constructor", "reset", "step"])
def test_errors_of_an_environment_keep_their_type(placement: dict[str, Any], phase: str) -> None:
    def play() -> None:
        with vector_env(placement, partial(FaultyEnv, phase)) as env:
            env.reset(seed=0)
            env.step(ACTIONS)

    with pytest.raises(DummyFaultError, match=phase):
        play()


@pytest.mark.parametrize("fault", ["kill", "exit", "segfault"])
def test_a_worker_that_dies_is_named(fault: str) -> None:
    makes = [CountingEnv, CountingEnv, CountingEnv, partial(FaultyEnv, "step", fault, number=3)]
    env = VectorEnv(makes, **PLACEMENTS["two workers"])
    env.reset(seed=0)
    env.step(ACTIONS)
    env.step(ACTIONS)
    with pytest.raises(WorkerDiedError, match=r"worker 1 \(environments 2-3 of CountingEnv"):
        env.step(ACTIONS)
    env.close()


def test_a_worker_that_hangs_is_killed() -> None:
    options = {**PLACEMENTS["two workers"], "timeout_s": 0.5}
    env = VectorEnv([CountingEnv, partial(FaultyEnv, "step", "hang_in_c")], **options)
    env.reset(seed=0)
    with pytest.raises(TimeoutError, match=r"0\.5"):
        env.step(np.ones(2, int))
    env.close()


@pytest.mark.parametrize(
    "space",
    [spaces.Text(3), spaces.Sequence(spaces.Discrete(2)), spaces.Graph(spaces.Discrete(2), None)],
)
def test_spaces_of_no_fixed_size_are_refused(placement: dict[str, Any], space: Any) -> None:
    name = type(space).__name__
    for makes in ({"observation_space": space}, {"action_space": space}):
        with pytest.raises(CustomSpaceError, match=f"{name}.*expected Box, Discrete"):
            vector_env(placement, partial(OfAnySpace, **makes))


def test_wrong_arguments() -> None:
    for match, options in (
        ("n_workers: expected 0 or more, got -1", {"n_workers": -1}),
        ("n_workers: expected 0 or None with parallel=False", {"parallel": False, "n_workers": 1}),
        ("n_workers: expected at most 4", {"n_workers": 5}),
        ("'Never' is not a valid AutoresetMode", {"autoreset_mode": "Never"}),
    ):
        with pytest.raises(ValueError, match=match):
            VectorEnv([CountingEnv] * N, **options)
    with pytest.raises(ValueError, match="expected at least one factory"):
        VectorEnv([])
    with pytest.raises(TypeError, match=r"VectorEnv: env_factories\[0\]"):
        VectorEnv([CountingEnv()])  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="its spaces differ"):
        VectorEnv([CountingEnv, partial(CountingEnv, layout="dict")], parallel=False)
    with pytest.raises(ValueError, match="num_envs: expected at least 1"):
        make_vec("CartPole-v1", 0)
    with pytest.raises(gym.error.Error, match="NoSuchEnv"):
        make_vec("NoSuchEnv-v0", 2)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=str)
def test_any_cage_serves(mode: AutoresetMode) -> None:
    same_step = mode == AutoresetMode.SAME_STEP
    options: Any = {"infos": True, "reset_automatically": same_step}
    makes = [partial(CountingEnv, (2, 3))]

    def native(n: int) -> Any:
        return SyncVectorEnv(makes * n, autoreset_mode=mode)

    for cage in (
        Cage(makes[0], **options),
        ProcessCage(makes[0], start_method="fork", **options),
        VectorizedCage(makes, **options),
        VectorizedCage(VectorEnvFactory(native), n=1, **options),
        SynchronizedProcessCage(makes, n_workers=1, start_method="fork", **options),
    ):
        reference = SyncVectorEnv(makes, autoreset_mode=mode)
        with VectorEnv(cage, autoreset_mode=mode) as env:
            np.testing.assert_array_equal(env.reset(seed=3)[0], reference.reset(seed=3)[0])
            for _ in range(12):
                found, expected = env.step([1]), reference.step([1])
                for one, other in zip(found[:4], expected[:4], strict=True):
                    np.testing.assert_array_equal(one, other)
                assert found[4].keys() == expected[4].keys()
                if mode == AutoresetMode.DISABLED and (found[2] | found[3]).any():
                    mask = {"reset_mask": np.array([True])}
                    np.testing.assert_array_equal(
                        env.reset(options=dict(mask))[0], reference.reset(options=dict(mask))[0]
                    )
        reference.close()


def test_a_cage_of_another_mode_is_refused() -> None:
    for mode, automatic in (("NextStep", True), ("SameStep", False), ("Disabled", True)):
        cage = Cage(CountingEnv, infos=True, reset_automatically=automatic)
        with pytest.raises(ValueError, match=f"reset_automatically={not automatic} for"):
            VectorEnv(cage, autoreset_mode=mode)
        cage.close()


def test_gymnasium_makes_it_by_id() -> None:
    env = gym.make_vec("parllel/CartPole-v1", num_envs=3, parallel=False)
    assert isinstance(env, VectorEnv)
    assert env.spec is not None
    assert env.spec.id == "parllel/CartPole-v1"
    reference = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    np.testing.assert_array_equal(env.reset(seed=3)[0], reference.reset(seed=3)[0])
    env.close()
    again = gym.make_vec(env.spec)
    assert again.num_envs == 3
    assert again.spec == env.spec
    again.close()
    # Keyword arguments reach the environments, and a limit of steps its wrapper.
    with make_vec("Pendulum-v1", 2, parallel=False, g=3.0, max_episode_steps=5) as pendulum:
        assert pendulum.get_attr("g") == (3.0, 3.0)
        pendulum.reset(seed=0)
        for _ in range(5):
            *_, truncated, _ = pendulum.step(np.zeros((2, 1), np.float32))
        assert truncated.all()


def test_wrappers_of_each_environment_and_of_all(placement: dict[str, Any]) -> None:
    def wrapped(env: Any) -> Any:
        return NormalizeObservation(RecordEpisodeStatistics(env))

    wrappers = [gym.wrappers.FlattenObservation, partial(gym.wrappers.TimeAwareObservation)]
    mine = wrapped(make_vec("CartPole-v1", N, wrappers=wrappers, **placement))
    theirs = wrapped(gym.make_vec("CartPole-v1", N, "sync", wrappers=wrappers))
    np.testing.assert_array_equal(mine.reset(seed=1)[0], theirs.reset(seed=1)[0])
    ends = 0
    for k in range(60):
        actions = np.array([k % 2, 1, 0, (k // 2) % 2])
        found, expected = mine.step(actions), theirs.step(actions)
        for one, other in zip(found[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(one, other)
        if "episode" in expected[4]:
            ends += 1
            for key in ("r", "l"):
                np.testing.assert_array_equal(found[4]["episode"][key], expected[4]["episode"][key])
    assert ends
    mine.close()
    theirs.close()


def test_few_environments_stay_here() -> None:
    with make_vec("CartPole-v1", 1) as env:
        assert isinstance(env.cage, VectorizedCage)


def test_an_environment_that_is_dropped_ends_its_workers() -> None:
    env = make_vec("CartPole-v1", 2, n_workers=1, start_method="fork")
    env.reset(seed=0)
    env.step_async([0, 1])
    del env  # the guard of leaks finds what is left
