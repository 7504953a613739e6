"""The promises of gymnasium's vector documentation, with native vector environments below VectorEnv."""

from __future__ import annotations

import contextlib
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from test_vector_env_equal import MODES, N, VariedInfos, call, same

from parllel.cages import SynchronizedProcessCage, VectorEnvFactory, VectorizedCage
from parllel.testing import CountingEnv
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv
from parllel.vector import VectorEnv

NEXT_STEP, SAME_STEP, DISABLED = (
    AutoresetMode.NEXT_STEP,
    AutoresetMode.SAME_STEP,
    AutoresetMode.DISABLED,
)
PLACES: dict[str, dict[str, Any]] = {
    "here": {},
    "two workers": {"n_workers": 2},
    "a worker and here": {"n_workers": 1, "participate": True},
}

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered")


class SameOptions(VariedInfos):
    """Takes no options for an empty dict, which SyncVectorEnv leaves of options with only a mask."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed, options=options or None)


def counting(varied: bool, layout: str) -> Any:
    env = CountingEnv((3, 1, 4), random_lengths=True, end="alternate", layout=layout)
    return SameOptions(env, varied)


def sync(n: int, mode: AutoresetMode, varied: bool = True, layout: str = "box") -> SyncVectorEnv:
    return SyncVectorEnv([partial(counting, varied, layout)] * n, autoreset_mode=mode)


def carts(n: int) -> Any:
    return gym.make_vec("CartPole-v1", n, vectorization_mode="vector_entry_point")


def rendering_carts(n: int) -> Any:
    return gym.make_vec(
        "CartPole-v1", n, vectorization_mode="vector_entry_point", render_mode="rgb_array"
    )


def pool(n: int, seed: Any) -> Any:
    envpool = pytest.importorskip("envpool", reason="has no wheels for this Python or system")
    return envpool.make_gymnasium("CartPole-v1", num_envs=n, seed=seed, num_threads=1)


def asynchronous(n: int) -> AsyncVectorEnv:
    return AsyncVectorEnv([partial(gym.make, "CartPole-v1")] * n, daemon=False)


CARTS = {"CartPoleVectorEnv": carts, "EnvPool": pool, "AsyncVectorEnv": asynchronous}


def below(
    make: Any, place: str = "here", mode: AutoresetMode = NEXT_STEP, copy: bool = True
) -> VectorEnv:
    """Return a VectorEnv on native vector environments."""
    options: dict[str, Any] = {
        "n": N,
        "infos": True,
        "reset_automatically": mode == SAME_STEP,
        "check": "first_step",
    }
    cage: Any
    if place == "here":
        cage = VectorizedCage(VectorEnvFactory(make), **options)
    else:
        start = {"start_method": "fork", "timeout_s": 20.0}
        cage = SynchronizedProcessCage(VectorEnvFactory(make), **options, **start, **PLACES[place])
    return VectorEnv(cage, autoreset_mode=mode, copy=copy)


@pytest.fixture(scope="module", autouse=True)
def what_libraries_keep() -> None:
    """Have it made before the first test, which would seem to leave it behind.

    AsyncVectorEnv's shared memory is kept by multiprocessing for later ones. EnvPool keeps an error of its
    import, and with it all that the importing functions refer to.
    """
    asynchronous(N).close()
    with contextlib.suppress(ImportError):
        import_module("envpool")


every_place = pytest.mark.parametrize("place", PLACES)
every_mode = pytest.mark.parametrize("mode", MODES, ids=str)
every_kind = pytest.mark.parametrize("kind", CARTS)


# ---------------------------------------------------------------- SyncVectorEnv: the same numbers

SOME = st.lists(st.booleans(), min_size=N, max_size=N).filter(any)
STEP = st.tuples(st.just("step"), st.integers(0, 2**20))
CALLS = st.one_of(
    *[STEP] * 3,
    st.tuples(st.just("some"), SOME),
    st.tuples(st.just("reset"), st.none() | st.integers(0, 2**20)),
    st.tuples(st.just("set"), st.integers(0, 9)),
)
OPTIONS = st.tuples(st.just("seeds and options"), st.integers(0, 9))


def called(env: Any, what: str, value: Any) -> Any:
    if what == "seeds and options":
        seeds = [value + i if i % 2 else None for i in range(N)]
        return env.reset(seed=seeds, options={"k": value})
    return call(env, what, value)


@every_place
@pytest.mark.parametrize("native", MODES, ids=lambda mode: f"native {mode.value}")
@every_mode
@pytest.mark.few(8)
def test_any_calls_have_the_results_of_a_sync_vector_env(
    mode: AutoresetMode, native: AutoresetMode, place: str
) -> None:
    env = below(partial(sync, mode=native), place, mode)
    reference = sync(N, mode)
    assert env.metadata == reference.metadata
    ended = np.zeros(N, bool)
    # An environment that has begun its next episode by itself would begin one more, or is called in it.
    calls = st.one_of(STEP, CALLS, OPTIONS)
    if native == SAME_STEP != mode:
        calls = STEP

    @settings(max_examples=6, database=None)
    @given(st.integers(0, 2**20), st.lists(calls, min_size=5, max_size=25))
    def check(seed: int, made: list[tuple[str, Any]]) -> None:
        if native != SAME_STEP or mode == SAME_STEP:
            same(env.reset(seed=seed), reference.reset(seed=seed))
            ended[:] = False
        for what, value in made:
            if what == "step" and mode == DISABLED and ended.any():
                same(call(env, "some", ended.tolist()), call(reference, "some", ended.tolist()))
                ended[:] = False
            found, expected = called(env, what, value), called(reference, what, value)
            same(found, expected, what)
            if what == "step":
                ended[:] = found[2] | found[3]
            elif what == "some":
                ended[np.array(value)] = False
            elif what != "set":
                ended[:] = False

    with env:
        same(env.reset(seed=1), reference.reset(seed=1))
        check()
    reference.close()


@every_mode
@pytest.mark.parametrize("layout", ["float64", "scalar", "image", "discrete", "dict", "tuple"])
@pytest.mark.few(6)
def test_observations_of_every_form(layout: str, mode: AutoresetMode) -> None:
    # The environment's own mode differs from the one asked for.
    native = {NEXT_STEP: DISABLED, SAME_STEP: NEXT_STEP, DISABLED: NEXT_STEP}[mode]
    reference = sync(N, mode, False, layout)
    make = partial(sync, mode=native, varied=False, layout=layout)
    with below(make, "a worker and here", mode, copy=mode == NEXT_STEP) as env:
        for name in ("observation_space", "action_space"):
            assert getattr(env, name) == getattr(reference, name)
            assert getattr(env, f"single_{name}") == getattr(reference, f"single_{name}")
        same(env.reset(seed=3), reference.reset(seed=3))
        for k in range(25):
            found = call(env, "step", k)
            same(found, call(reference, "step", k))
            assert env.observation_space.contains(found[0])
            ended = (found[2] | found[3]).tolist()
            if mode == DISABLED and any(ended):
                same(call(env, "some", ended), call(reference, "some", ended))
    reference.close()


# ---------------------------------------------------------------- CartPole of several libraries: its physics


def moved(observation: Any, actions: Any) -> Any:
    """Return the observations after one step of CartPole (Barto et al. 1983), in float64."""
    x, v, angle, w = np.asarray(observation, np.float64).T
    force = np.where(actions == 1, 10.0, -10.0)
    sin, cos = np.sin(angle), np.cos(angle)
    push = (force + 0.05 * w**2 * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    pull = push - 0.05 * turn * cos / 1.1
    return np.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * w, w + 0.02 * turn], 1)


def begun(observation: Any) -> bool:
    return bool((np.abs(observation) <= 0.05).all())


@every_place
@every_mode
@every_kind
@pytest.mark.few(8)
def test_episodes_go_on_and_end_as_the_mode_says(
    kind: str, mode: AutoresetMode, place: str
) -> None:
    rng = np.random.default_rng(0)
    ends = 0
    with below(CARTS[kind], place, mode) as env:
        last, _ = env.reset(seed=3)
        assert begun(last)
        waits, steps = np.zeros(N, bool), np.zeros(N, int)
        for k in range(80):
            actions = rng.integers(0, 2, N)
            seen, reward, terminated, truncated, infos = env.step(actions)
            assert reward.dtype == np.float64
            assert terminated.dtype == truncated.dtype == np.bool_
            ended = terminated | truncated
            after = seen.copy()
            if mode == SAME_STEP and ended.any():
                assert infos["_final_obs"].tolist() == ended.tolist()
                assert infos["_final_info"].tolist() == ended.tolist()
                assert begun(seen[ended])
                after[ended] = np.stack(infos["final_obs"][ended])
            elif mode == SAME_STEP:
                assert "final_obs" not in infos
            np.testing.assert_allclose(after[~waits], moved(last, actions)[~waits], atol=1e-4)
            assert (reward == ~waits).all()
            # A fall, and nothing else, ends an episode of so few steps.
            fell = (np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > 12 * np.pi / 180)
            assert terminated.tolist() == fell.tolist()
            assert not truncated.any()
            if waits.any():  # in the mode NEXT_STEP: the action was ignored
                assert begun(seen[waits])
                assert not ended[waits].any()
            if "elapsed_step" in infos:  # of EnvPool: the resets' own, not those of the first reset
                steps = np.where(waits, 0, steps + 1)
                counted = np.where(ended, 0, steps) if mode == SAME_STEP else steps
                assert infos["elapsed_step"].tolist() == counted.tolist()
                steps = counted
            ends += int(ended.sum())
            waits[:] = False
            if mode == NEXT_STEP:
                waits = ended
            if mode == DISABLED and ended.any():
                with pytest.raises(ResetNeeded, match="have ended"):
                    env.step(actions)
                seen, _ = env.reset(options={"reset_mask": ended})
                assert begun(seen[ended])
                np.testing.assert_array_equal(seen[~ended], after[~ended])
                steps[ended] = 0
            if k % 20 == 19 and not waits.any():
                mask = np.arange(N) % 3 == k % 3
                before, (seen, _) = seen, env.reset(options={"reset_mask": mask})
                assert begun(seen[mask])
                np.testing.assert_array_equal(seen[~mask], before[~mask])
                steps[mask] = 0
            last = seen
    assert ends >= 8


def rolled(env: VectorEnv, seed: Any) -> Any:
    seen = [env.reset(seed=seed)[0]]
    seen += [env.step(np.arange(k, k + N) % 2)[0] for k in range(40)]
    return np.array(seen)


@every_place
@every_kind
@pytest.mark.few(3)
def test_seeds(kind: str, place: str) -> None:
    with below(CARTS[kind], place) as env:
        first = rolled(env, 3)
        rolled(env, None)
        np.testing.assert_array_equal(rolled(env, 3), first)
        np.testing.assert_array_equal(rolled(env, range(3, 3 + N)), first)
        other = rolled(env, [3, 4, 5, 99, 7])
        changed = (first != other).any(axis=(0, 2))
        if kind != "CartPoleVectorEnv":  # whose environments share a generator
            assert changed.tolist() == [False] * 3 + [True, False]
        assert changed[3]
        # Without seeds, new episodes follow.
        assert (rolled(env, None) != rolled(env, None)).any()


@every_place
@pytest.mark.parametrize(
    ("kind", "match"),
    [
        ("CartPoleVectorEnv", "neither seeds nor options .* CartPoleVectorEnv share one random"),
        ("EnvPool", "takes its seeds when it is made; got seeds for 1 of"),
    ],
)
def test_seeds_that_cannot_be_used_are_refused(kind: str, match: str, place: str) -> None:
    mask = np.arange(N) == 2
    with below(CARTS[kind], place) as env:
        first = rolled(env, 3)
        with pytest.raises(ValueError, match=match):
            env.reset(seed=5, options={"reset_mask": mask})
        if kind == "EnvPool":
            with pytest.raises(ValueError, match="takes its seeds when it is made"):
                env.reset(seed=[None, 1, 2, None, 5])
        else:
            with pytest.raises(ValueError, match="neither seeds nor options"):
                env.reset(options={"reset_mask": mask, "low": -0.01, "high": 0.01})
        # Nothing was changed, and the workers live.
        np.testing.assert_array_equal(rolled(env, 3), first)


def test_seeds_of_some_environments() -> None:
    mask = np.arange(N) == 2
    with below(asynchronous) as env:
        env.reset(seed=0)
        seen = [env.reset(seed=5, options={"reset_mask": mask})[0] for _ in range(2)]
        np.testing.assert_array_equal(seen[0], seen[1])
        reference = gym.make("CartPole-v1")
        np.testing.assert_array_equal(seen[0][2], reference.reset(seed=7)[0])


@every_kind
@pytest.mark.parametrize("copy", [True, False])
def test_copies_and_views(copy: bool, kind: str) -> None:
    with below(CARTS[kind], copy=copy) as env:
        env.reset(seed=0)
        first = env.step(np.ones(N, int))[0]
        kept = first.copy()
        env.step(np.ones(N, int))
        np.testing.assert_array_equal(first, kept)
        env.step(np.ones(N, int))
        assert np.array_equal(first, kept) is copy


# ---------------------------------------------------------------- attributes, methods, description


@every_place
def test_attributes_that_environments_share(place: str) -> None:
    with below(carts, place) as env:
        env.reset(seed=0)
        assert env.get_attr("length") == (0.5,) * N
        env.set_attr("length", 1.5)
        env.set_attr("gravity", [3.0] * N)
        assert env.get_attr("length") == (1.5,) * N
        assert env.call("gravity") == (3.0,) * N
        with pytest.raises(TypeError, match="length: expected equal values"):
            env.set_attr("length", [1.0, 2.0, 3.0, 4.0, 5.0])
        with pytest.raises(ValueError, match="length: expected a list or tuple of num_envs=5"):
            env.set_attr("length", [1.0])
        for call_ in (lambda: env.get_attr("lenght"), lambda: env.set_attr("lenght", 1.0)):
            with pytest.raises(AttributeError, match="lenght"):
                call_()
        for name in ("reset", "step", "close"):
            with pytest.raises(ValueError, match=f"own {name}"):
                env.call(name)
        assert len(env.np_random) == len(env.np_random_seed) == N
        assert env.step(np.ones(N, int))[1].tolist() == [1.0] * N


@every_place
def test_attributes_of_each_environment(place: str) -> None:
    with below(asynchronous, place) as env:
        env.reset(seed=[3, 4, 5, 6, 7])
        values = (0.5, 1.0, 1.5, 2.0, 2.5)
        env.set_attr("length", values)
        assert env.get_attr("length") == values
        assert env.call("get_wrapper_attr", "length") == values
        assert env.np_random_seed == (3, 4, 5, 6, 7)


@every_place
def test_pictures(place: str) -> None:
    with below(rendering_carts, place) as env:
        assert env.render_mode == "rgb_array"
        env.reset(seed=0)
        frames = env.render()
        assert [frame.shape for frame in frames] == [(400, 600, 3)] * N
        assert all(frame.any() for frame in frames)


@every_mode
@every_kind
def test_description(kind: str, mode: AutoresetMode) -> None:
    with below(CARTS[kind], mode=mode) as env:
        assert env.metadata["autoreset_mode"] is mode
        assert "rgb_array" in env.metadata["render_modes"]
        assert env.render_mode is None
        assert env.num_envs == N
        reference = gym.make("CartPole-v1")
        assert env.single_action_space == reference.action_space
        assert env.action_space == gym.spaces.MultiDiscrete([2] * N)
        assert env.single_observation_space.shape == (4,)
        assert env.observation_space.shape == (N, 4)
        env.reset(seed=0)
        assert env.observation_space.contains(env.step(env.action_space.sample())[0])


# ---------------------------------------------------------------- order, errors, end


@every_place
@every_kind
@pytest.mark.few(4)
def test_calls_have_an_order_and_an_end(kind: str, place: str) -> None:
    actions = np.ones(N, int)
    with below(CARTS[kind], place) as env:
        with pytest.raises(ResetNeeded, match=r"call reset\(\) first"):
            env.step(actions)
        with pytest.raises(ResetNeeded, match="all environments before one with a reset_mask"):
            env.reset(options={"reset_mask": np.arange(N) == 1})
        env.reset(seed=0)
        with pytest.raises(ValueError, match=r"actions: expected shape \(5,\)"):
            env.step(1)
        env.step_async(actions)
        with pytest.raises(AlreadyPendingCallError, match=r"call step_wait\(\) first"):
            env.call("render")
        assert env.step_wait()[1].tolist() == [1.0] * N
        env.step_async(actions)
    env.close()
    with pytest.raises(ClosedEnvironmentError, match="was closed"):
        env.step(actions)


@every_place
@pytest.mark.parametrize("phase", ["constructor", "reset", "step"])
def test_errors_of_an_environment_keep_their_type(phase: str, place: str) -> None:
    def faulty(n: int) -> SyncVectorEnv:
        return SyncVectorEnv([CountingEnv] * (n - 1) + [partial(FaultyEnv, phase)])

    def play() -> None:
        with below(faulty, place) as env:
            env.reset(seed=0)
            env.step(np.ones(N, int))

    with pytest.raises(DummyFaultError, match=phase):
        play()
