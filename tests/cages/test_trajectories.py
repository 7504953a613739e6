"""Statistics of episodes: piled up and added in one pass, they are those of a plain loop, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from python_code import output_of

from parllel.buffers import NamedArrayTuple
from parllel.cages import TrajInfo, VectorizedCage
from parllel.cages.cage_interface import CageInterface
from parllel.cages.stepping import batched_trajectories
from parllel.cages.stepping.batched_trajectories import follow
from parllel.cages.stepping.environments import Environments
from parllel.cages.stepping.environments_for import environments_for
from parllel.cages.stepping.rows import cage_part
from parllel.errors import notes_of
from parllel.testing.cages.cage_hooks import run, run_rows
from parllel.testing.cages.row_reference import make_samples

T = 6
Numbers = tuple[int, float, float]


class ScriptedEnv(gym.Env[Any, Any]):
    """Pay random rewards over episodes of random lengths, the same for the same `script`."""

    def __init__(self, script: int, longest: int = 5, scale: float = 1.0) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.rng = np.random.default_rng(script)
        self.longest, self.scale = longest, scale
        self.left = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.left = int(self.rng.integers(1, self.longest + 1))
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        reward = self.scale * float(self.rng.normal()) * 10.0 ** int(self.rng.integers(-8, 9))
        return np.ones(2, np.float32), reward, self.left == 0, False, {}


class Recorder(TrajInfo):
    """Keep the rewards themselves."""

    def __init__(self, discount: float = 1.0) -> None:
        super().__init__(discount)
        self.rewards: list[float] = []

    def step(self, *args: Any) -> None:
        self.rewards.append(args[2])


def expected_of(rewards: list[float], discount: float) -> Numbers:
    """Add up in the order in which rewards came."""
    return_, discounted, weight = 0.0, 0.0, 1.0
    for reward in rewards:
        return_ = return_ + reward
        discounted = discounted + weight * reward
        weight = weight * discount
    return len(rewards), return_, discounted


def numbers_of(traj: TrajInfo) -> Numbers:
    return traj.length, traj.return_, traj.discounted_return


def environments(
    made: Callable[[], TrajInfo], scripts: list[int], automatic: bool, scale: float = 1.0
) -> Environments:
    """Make bound environments of these scripts."""
    n = len(scripts)
    factories = [partial(ScriptedEnv, script, scale=scale) for script in scripts]
    envs = environments_for(factories, list(range(n)), made, reset_automatically=automatic)
    assert isinstance(envs, Environments)
    action, fields = cage_part(make_samples(ScriptedEnv(0), T, n, info=False))
    envs.bind(action, NamedArrayTuple(**fields), slice(0, n))
    envs.reset_rows(0, all_envs=True)
    return envs


WAYS = ["rows", "rows", "rows", "random row", "reset all", "reset done", "reset one"]
WAYS += ["plain", "prepare", "decorrelate", "take"]
OPERATIONS = st.lists(st.tuples(st.sampled_from(WAYS), st.integers(0, 20)), max_size=25)


def perform(envs: Environments, what: str, k: int) -> list[TrajInfo]:
    """Do one thing to environments; return the episodes that it collects."""
    n = len(envs.stepper.envs)
    if what == "rows":
        for t in range(k):
            envs.step_row(t % T)
    elif what == "random row":
        envs.random_row(k % T)
    elif what == "reset all":
        envs.reset_rows(0, all_envs=True)
    elif what == "reset done":
        envs.reset_rows(0, all_envs=False)
    elif what == "reset one" or (what == "plain" and envs.needs_reset[k % n]):
        envs.stepper.reset_one(k % n)
    elif what == "plain":
        envs.stepper.step_one(k % n, 1)
    elif what == "prepare":
        envs.prepare(0)
    elif what == "decorrelate" and not envs.needs_reset.any():
        envs.decorrelate([(k + i) % 8 for i in range(n)], 0)
    elif what == "take":
        ready = envs.has_completed
        trajs = envs.take_completed()
        assert ready == bool(trajs)
        return trajs
    return []


@settings(max_examples=80)
@given(
    scripts=st.lists(st.integers(0, 2**31), min_size=1, max_size=4),
    automatic=st.booleans(),
    discount=st.sampled_from([1.0, 0.99, 0.1, 0.0]),
    scale=st.sampled_from([1.0, 1e28, 0.0]),
    operations=OPERATIONS,
    pile=st.sampled_from([1, 3, 2**15]),
)
def test_sums_are_those_of_a_plain_loop(
    scripts: list[int],
    automatic: bool,
    discount: float,
    scale: float,
    operations: list[tuple[str, int]],
    pile: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched_trajectories, "_KEPT_REWARDS", pile)
        patch.setattr(batched_trajectories, "_MIN_ROWS", pile if pile < 10 else 64)
        piled = environments(partial(TrajInfo, discount), scripts, automatic, scale)
    recorded = environments(Recorder, scripts, automatic, scale)
    for what, k in [*operations, ("take", 0)]:
        found, reference = perform(piled, what, k), perform(recorded, what, k)
        expected = [expected_of(traj.rewards, discount) for traj in reference]  # type: ignore[attr-defined]
        # Compared as text, as -0.0 is another number than 0.0 and each digit counts.
        assert repr([numbers_of(traj) for traj in found]) == repr(expected)
        np.testing.assert_array_equal(piled.needs_reset, recorded.needs_reset)
    piled.close()
    recorded.close()


@settings(max_examples=60)
@given(data=st.data(), n=st.integers(1, 4), rows=st.integers(0, 12))
def test_the_compiled_pass_is_the_plain_one(data: st.DataObject, n: int, rows: int) -> None:
    from parllel.cages.stepping import compiled

    seed = data.draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(rows + 2, n)) * 10.0 ** rng.integers(-9, 9, (rows + 2, n))
    count = data.draw(st.integers(0, 10)) if rows else 0
    events = np.stack(
        [
            np.sort(rng.integers(0, rows + 1, count)),
            rng.integers(0, n, count),
            rng.integers(0, 2, count),
        ],
        axis=1,
    ).astype(np.int64)
    start = np.array([0.0, 0.5, 0.0, 0.9])
    made = []
    for function in (compiled.add_up, batched_trajectories.add_up):
        sums, ended = np.random.default_rng(seed).normal(size=(n, 4)), np.zeros((count, 4))
        function(rewards, rows, events, start, 0.97, sums, ended)
        ended[events[:, 2] == 0] = 0  # says nothing where an episode begins
        made.append((sums.tobytes(), ended.tobytes()))
    assert made[0] == made[1]


def test_episodes_come_by_column_then_in_time() -> None:
    trajs = follow(TrajInfo, 3)
    trajs.add_row([1.0, 2.0, 3.0], [(2, True, False), (0, False, True)])
    trajs.add_row([4.0, 5.0, 6.0], [(2, True, False)])
    trajs.step(1, None, None, 7.0, True, False, {})
    trajs.end(1)
    trajs.add_row([8.0, 9.0, 10.0], [(0, True, False)])
    assert trajs.has_completed
    assert trajs.count() == 5
    assert [(traj.length, traj.return_) for traj in trajs.take()] == [
        (1, 1.0),
        (2, 12.0),
        (3, 14.0),
        (1, 3.0),
        (1, 6.0),
    ]
    assert not trajs.has_completed
    assert trajs.take() == []


class Marked(TrajInfo):
    """Has more to it, but leaves `step` alone; discounts from the first step on."""

    def __init__(self, mark: str) -> None:
        super().__init__(discount=0.5)
        self.mark = mark
        self._weight = 0.5

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "per_step": self.return_ / self.length}


def test_a_subclass_without_a_step_keeps_what_it_has() -> None:
    trajs = follow(partial(Marked, "blue"), 2)
    assert not trajs.per_step
    trajs.add_row([4.0, 1.0], [])
    trajs.add_row([8.0, 1.0], [(0, True, False)])
    (traj,) = trajs.take()
    assert type(traj) is Marked
    assert traj.as_dict() == {
        "length": 2,
        "return": 12.0,
        "discounted_return": 0.5 * 4 + 0.25 * 8,
        "mark": "blue",
        "per_step": 6.0,
    }


def test_a_step_of_its_own_is_called() -> None:
    def made() -> TrajInfo:
        traj = TrajInfo()
        traj.step = traj.step  # type: ignore[method-assign]
        return traj

    for factory in (Recorder, partial(Recorder, 0.5), made):
        assert follow(factory, 2).per_step
    with VectorizedCage([partial(ScriptedEnv, i, 3) for i in range(3)], traj_info=Recorder) as cage:
        cage.set_samples_buffer(make_samples(ScriptedEnv(0), T, 3, info=False), slice(0, 3))
        run_rows(cage, T)
        trajs: Any = cage.collect_completed_trajs()
    assert len(trajs) >= 3
    assert all(1 <= len(traj.rewards) <= 3 and traj.length == 0 for traj in trajs)


# ---------------------------------------------------------------------- rows that go wrong


class OddEnv(gym.Env[Any, Any]):
    """Two steps an episode; from step `number` on, `change` makes of the result what it likes."""

    def __init__(self, number: int = 10**9, change: Callable[[list[Any]], Any] = tuple) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.number, self.change, self.steps = number, change, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.full(2, -1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        result = [np.full(2, self.steps, np.float32), 1.0, self.steps % 2 == 0, False, {}]
        return self.change(result) if self.steps >= self.number else tuple(result)


def with_reward(reward: Any) -> Callable[[list[Any]], Any]:
    return lambda result: (result[0], reward, *result[2:])


def with_observation(observation: Any) -> Callable[[list[Any]], Any]:
    return lambda result: (observation, *result[1:])


def odd_cage(n: int, number: int, change: Any, **options: Any) -> tuple[CageInterface, Any]:
    """Return a cage of n of which the second is odd, and its samples, at the start of an episode."""
    odd: Any = partial(OddEnv, number, change)
    factories = [OddEnv, odd, *[OddEnv] * (n - 2)]
    cage = VectorizedCage(factories, index=4, **options)
    samples = make_samples(OddEnv(), T, n, info=False)
    cage.set_samples_buffer(samples, slice(0, n))
    run_rows(cage, 2)
    return cage, samples


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("made", [TrajInfo, Recorder])
@pytest.mark.parametrize("reward", [None, "much", [1.0, 2.0]])
def test_a_reward_that_is_none_is_refused_at_any_time(n: int, made: Any, reward: Any) -> None:
    cage, samples = odd_cage(n, 3, with_reward(reward), traj_info=made)
    samples.env.reward[2] = 7
    with cage:
        name = r"environment 5 \(OddEnv\): reward: expected a number, got "
        with pytest.raises(TypeError, match=name) as caught:
            run(cage, "start_row", 2)
        # The record with a step of its own is told each reward at once.
        if made is Recorder:
            assert notes_of(caught.value)[0].startswith("in environment 5 (OddEnv)")
        # Those after it were stepped unless that was noticed at once; its own cell is left alone.
        others = [np.nan if made is Recorder else 1.0] * (n - 2)
        np.testing.assert_array_equal(samples.env.reward[2], [1.0, 7.0, *others])
        assert [traj.length for traj in cage.collect_completed_trajs()] == [
            0 if made is Recorder else 2
        ] * n


@pytest.mark.parametrize(
    "reward", [np.float32(0.1), np.float64(0.1), 3, True, np.array(0.1), 2**60 + 1], ids=repr
)
def test_a_reward_is_the_float_that_it_is(reward: Any) -> None:
    cage, samples = odd_cage(4, 3, with_reward(reward))
    with cage:
        run(cage, "start_row", 2)
        run(cage, "start_row", 3)
        assert np.asarray(samples.env.reward[2, 1]) == np.float32(float(reward))
        trajs = cage.collect_completed_trajs()
    assert [traj.return_ for traj in trajs[2:4]] == [2.0, float(reward) + float(reward)]


@pytest.mark.parametrize("n", [2, 5])
def test_an_observation_of_another_shape_names_its_environment(n: int) -> None:
    cage, samples = odd_cage(n, 3, with_observation(np.zeros(3, np.float32)))
    samples.env.reward[2] = 7
    with cage, pytest.raises(ValueError, match="broadcast") as caught:
        run(cage, "start_row", 2)
    assert notes_of(caught.value) == ["in environment 5 (OddEnv), during step"]
    np.testing.assert_array_equal(samples.env.reward[2], [1.0, 7.0, *[np.nan] * (n - 2)])


def fail(result: list[Any]) -> Any:
    raise OSError("no more")


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("automatic", [True, False])
def test_steps_before_a_failure_count(n: int, automatic: bool) -> None:
    cage, _ = odd_cage(n, 4, fail, reset_automatically=automatic)
    with cage:
        if not automatic:
            run(cage, "start_reset", 0)
        run(cage, "start_row", 2)
        with pytest.raises(OSError, match="no more") as caught:
            run(cage, "start_row", 3)
        assert notes_of(caught.value) == ["in environment 5 (OddEnv), during step"]
        trajs = cage.collect_completed_trajs()
    # The first environment ended its second episode in the row that failed.
    assert [(traj.length, traj.return_) for traj in trajs] == [(2, 2.0)] * (n + 1)


# ---------------------------------------------------------------------- rows that were used before


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("automatic", [True, False])
def test_nothing_of_what_a_row_held_stays(n: int, automatic: bool) -> None:
    samples = make_samples(OddEnv(), T, n + 2, info=False)
    leaves = [getattr(samples.env, name) for name in ("reward", "terminated", "truncated", "done")]
    for leaf in leaves:
        leaf[...] = 1
    samples.env.observation[...] = 9
    with VectorizedCage([OddEnv] * n, reset_automatically=automatic) as cage:
        cage.set_samples_buffer(samples, slice(1, n + 1))
        run_rows(cage, 4)
    reward, terminated, truncated, done = (np.asarray(leaf) for leaf in leaves)
    assert not truncated[:4, 1:-1].any()
    ends = [False, True, False, automatic]
    for column in range(1, n + 1):
        assert terminated[:4, column].tolist() == done[:4, column].tolist() == ends
        assert reward[:4, column].tolist() == [1.0, 1.0, float(automatic), float(automatic)]
        rows = np.asarray(samples.env.observation)[:5, column, 0].tolist()
        assert rows == ([-1, 1, -1, 3, -1] if automatic else [-1, 1, 2, 0, 0])
    for edge in (0, n + 1):
        assert all(np.asarray(leaf)[:, edge].all() for leaf in leaves)
        assert (np.asarray(samples.env.observation)[:, edge] == 9).all()


# ---------------------------------------------------------------------- the compiler


def test_nothing_that_is_done_ahead_of_time_loads_the_compiler() -> None:
    code = (
        "import sys\n"
        "from parllel.cages import TrajInfo\n"
        "from parllel.cages.stepping.batched_trajectories import follow\n"
        "trajs = follow(TrajInfo, 2)\n"
        "for reward in (1.0, 3.0):\n"
        "    trajs.add_row([reward] * 2, [(0, True, False)])\n"
        "    trajs.prepare()\n"
        "    print('numba' in sys.modules, [traj.return_ for traj in trajs.take()])"
    )
    assert output_of(code).splitlines() == ["False [1.0]", "True [3.0]"]


@pytest.mark.parametrize(("n", "loaded"), [(1, False), (2, True)])
def test_the_compiler_is_loaded_for_several_environments_alone(n: int, loaded: bool) -> None:
    code = (
        "import sys\n"
        "from parllel.cages import TrajInfo\n"
        "from parllel.cages.stepping.batched_trajectories import follow\n"
        f"trajs = follow(TrajInfo, {n})\n"
        "assert 'numba' not in sys.modules\n"
        f"trajs.add_row([1.0] * {n}, [(0, True, False)])\n"
        "assert [traj.return_ for traj in trajs.take()] == [1.0]\n"
        "print('numba' in sys.modules)"
    )
    assert output_of(code).strip() == str(loaded)
