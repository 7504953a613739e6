from __future__ import annotations

import copy
from collections import deque
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from parllel import BatchSpec
from parllel.cages import (
    Cage,
    ProcessCage,
    SynchronizedProcessCage,
    TrajInfo,
    VectorEnvFactory,
    VectorizedCage,
)
from parllel.runs import load_state, save_state
from parllel.testing.transform_samples import allocate_numbers

T, B = 20, 3


class OddTrajInfo(TrajInfo):
    """Is told of every step."""

    def __init__(self):
        super().__init__(0.5)
        self.odd = 0

    def step(self, *arguments):
        super().step(*arguments)
        self.odd += self.length % 2


class Stateless(gym.Wrapper):
    """Does not offer its state."""

    def __init__(self, env):
        super().__init__(env)
        self.secret = 0


class PathTrajInfo(TrajInfo):
    """Keeps a list."""

    def __init__(self):
        super().__init__()
        self.path = []

    def step(self, *arguments):
        super().step(*arguments)
        self.path.append(self.length)


def make_env():
    return gym.make("CartPole-v1", max_episode_steps=25)


def make_stateless():
    return Stateless(make_env())


class Together:
    """Cages of B environments, with what a sampler does to them."""

    def __init__(self, kind, seed, automatic=True, traj_info=OddTrajInfo, makes=(make_env,) * B):
        options = {"reset_automatically": automatic, "traj_info": traj_info}
        if kind in (Cage, ProcessCage):
            self.cages = [kind(make, seed=seed + i, **options) for i, make in enumerate(makes)]
        else:
            self.cages = [kind(list(makes), seeds=[seed + i for i in range(B)], **options)]
        observation = np.zeros(4, np.float32)
        self.samples = allocate_numbers(
            BatchSpec(T, B), observation=observation, agent_info=None, storage="managed"
        )
        lo = 0
        for cage in self.cages:
            cage.set_samples_buffer(self.samples, slice(lo, lo + cage.n))
            lo += cage.n

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for cage in self.cages:
            cage.close()

    def each(self, method, *arguments, **options):
        for cage in self.cages:
            for group in range(len(cage.groups)):
                getattr(cage, method)(*arguments, group=group, **options)
        for cage in self.cages:
            for group in range(len(cage.groups)):
                cage.finish_row(group)

    def batch(self, actions):
        """Return copies of what came of stepping, and the episodes that ended."""
        for t in range(len(actions)):
            self.samples.agent.action[t] = actions[t]
            self.each("start_row", t)
        env = self.samples.env
        fields = (env.observation, env.reward, env.terminated, env.truncated)
        rows = [np.array(field) for field in fields]
        rows.append(np.array(env.observation[T]))
        trajs = [traj for cage in self.cages for traj in cage.collect_completed_trajs()]
        for cage in self.cages:
            cage.collect_final_observations()
        return rows, [traj.as_dict() for traj in trajs]

    def rotate(self):
        self.samples.env.observation.rotate()

    def states(self):
        return [state for cage in self.cages for state in cage.environment_states()]

    def load(self, states, salt=1):
        lo = 0
        for cage in self.cages:
            cage.load_environment_states(states[lo : lo + cage.n], salt)
            lo += cage.n

    @property
    def needs_reset(self):
        return np.concatenate([cage.needs_reset for cage in self.cages])


def native(mode):
    """Return what makes a cage of one native vector environment."""

    def make(makes, **options):
        together = VectorEnvFactory(lambda n: SyncVectorEnv(makes[:n], autoreset_mode=mode))
        return VectorizedCage(together, n=len(makes), **options)

    return make


KINDS = [
    Cage,
    ProcessCage,
    VectorizedCage,
    native("NextStep"),
    native("SameStep"),
    partial(SynchronizedProcessCage, n_workers=2, participate=True),
    partial(SynchronizedProcessCage, n_workers=1, n_groups=2),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("traj_info", "automatic"), [(OddTrajInfo, True), (partial(TrajInfo, 0.5), False)]
)
@pytest.mark.few(2)
def test_other_cages_go_on_from_a_file(kind, traj_info, automatic, tmp_path):
    generator = np.random.default_rng(0)
    actions = generator.integers(0, 2, (4, T, B))
    with Together(kind, 10, automatic, traj_info) as first:
        first.each("start_reset", 0)
        for i in range(2):
            first.batch(actions[i])
            first.rotate()
            first.each("start_reset", 0, all_envs=False)
        third, _ = first.batch(actions[2])
        save_state(tmp_path / "state.zip", {"states": first.states()})
        first.rotate()
        first.each("start_reset", 0, all_envs=False)
        expected = first.batch(actions[3])
    with Together(kind, 77, automatic, traj_info) as second:
        second.load(load_state(tmp_path / "state.zip")["states"])
        second.samples.env.observation[T] = third[4]
        second.rotate()
        second.each("start_reset", 0, all_envs=False)
        rows, trajs = second.batch(actions[3])
    for found, wanted in zip(rows, expected[0], strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert trajs == expected[1]
    assert any(trajs), "no episode ended: this test shows nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_environments_without_a_state_begin_other_episodes(kind):
    makes = (make_env, make_stateless, make_env)
    observations = {}
    with Together(kind, 10, makes=makes) as first:
        first.each("start_reset", 0)
        observations["first"] = np.array(first.samples.env.observation[0])
        first.batch(np.zeros((T, B), int))
        states = first.states()
    assert [state["env"] is None for state in states] == [False, True, False]
    assert "Stateless" in states[1]["missing"]
    for salt in (1, 2):
        with Together(kind, 10, makes=makes) as second:
            second.load(states, salt)
            assert second.needs_reset.tolist() == [False, True, False]
            second.samples.env.observation[0] = 5
            second.each("start_reset", 0, all_envs=False)
            observations[salt] = np.array(second.samples.env.observation[0])
            assert not second.needs_reset.any()
    # The others are left alone, and this one plays neither the same episode again nor one for both.
    assert (observations[1][[0, 2]] == 5).all()
    distinct = {observation[1].tobytes() for observation in observations.values()}
    assert len(distinct) == 3


def test_environments_that_wait_are_counted_after_a_state_that_was_refused():
    # The first two end after five steps, while the third goes on.
    makes = [partial(gym.make, "CartPole-v1", max_episode_steps=n) for n in (5, 5, 50)]
    actions = np.arange(T)[:, None] % 2 + np.zeros(B, int)
    with Together(VectorizedCage, 10, False, makes=makes) as first:
        first.each("start_reset", 0)
        first.batch(actions)
        states = first.states()
    assert [state["needs_reset"] for state in states] == [True, True, False]
    states[2]["waits"] = False
    with Together(VectorizedCage, 10, False, makes=makes) as second:
        second.each("start_reset", 0)
        with pytest.raises(
            ValueError, match="that waits to be reset, got the state of one that resets"
        ):
            second.load(states)
        second.each("start_reset", 0)
        rows, _ = second.batch(actions)
        assert rows[1].sum(axis=0).tolist() == [5, 5, T]


@pytest.mark.parametrize("kind", KINDS)
def test_states_of_another_number_are_refused(kind):
    with Together(kind, 10) as cages:
        states = cages.states()
        cage = cages.cages[0]
        with pytest.raises(ValueError, match=f"expected {cage.n}, one per environment, got 4"):
            cage.load_environment_states([states[0]] * 4, 0)
        cage.load_environment_states(states[: cage.n], 0)  # it is well


@pytest.mark.parametrize("kind", [VectorizedCage, KINDS[-1]])
@pytest.mark.parametrize("automatic", [True, False])
def test_environments_that_wait_are_not_those_that_reset_by_themselves(kind, automatic):
    kinds = ["resets by itself", "waits to be reset"][:: 1 if automatic else -1]
    with Together(kind, 10, not automatic) as first:
        states = first.states()
    text = f"an environment that {kinds[0]}, got the state of one that {kinds[1]}"
    with Together(kind, 10, automatic) as second, pytest.raises(ValueError, match=text):
        second.load(states)


PLAIN = partial(TrajInfo, 0.5)


@pytest.mark.parametrize("kind", [VectorizedCage, ProcessCage])
@pytest.mark.parametrize(
    ("saved", "loaded", "text"),
    [
        (OddTrajInfo, PLAIN, "of a plain TrajInfo, got the state of class OddTrajInfo"),
        (PLAIN, OddTrajInfo, "of class OddTrajInfo, got of plain sums"),
        (PathTrajInfo, OddTrajInfo, "of class OddTrajInfo, got PathTrajInfo"),
    ],
)
def test_episodes_of_other_classes_are_refused(kind, saved, loaded, text):
    with Together(kind, 10, traj_info=saved) as first:
        states = first.states()
    with (
        Together(kind, 10, traj_info=loaded) as second,
        pytest.raises(ValueError, match=f"TrajInfo: expected the state {text}"),
    ):
        second.load(states)


def test_the_state_of_an_episode_shares_no_memory():
    actions = np.zeros((T, B), int)
    with Together(VectorizedCage, 10, traj_info=PathTrajInfo) as first:
        first.each("start_reset", 0)
        first.batch(actions[:5])
        states = first.states()
        kept = copy.deepcopy([state["episode"] for state in states])
        assert all("path" in str(episode["traj"]) for episode in kept)
        first.batch(actions)
        assert [state["episode"] for state in first.states()] != kept
        for _ in range(2):
            with Together(VectorizedCage, 10, traj_info=PathTrajInfo) as second:
                second.load(states)
                second.batch(actions)
    assert [state["episode"] for state in states] == kept


class ManyTrajInfo(TrajInfo):
    """Keeps values of many kinds, which grow with every step."""

    def __init__(self):
        super().__init__()
        self.pair = (0, np.float32(0))
        self.visits = {}
        self.last = deque(maxlen=3)

    def step(self, observation, *arguments):
        super().step(observation, *arguments)
        self.pair = (self.pair[0] + 1, self.pair[1] + np.float32(0.1))
        self.visits[self.length % 4] = self.pair
        self.last.append(observation[:2].copy())


@pytest.mark.parametrize("kind", [VectorizedCage, ProcessCage])
def test_attributes_of_episodes_keep_their_kinds(kind, tmp_path):
    actions = np.zeros((T, B), int)
    with Together(kind, 10, traj_info=ManyTrajInfo) as first:
        first.each("start_reset", 0)
        first.batch(actions[:5])
        save_state(tmp_path / "state.zip", {"states": first.states()})
        _, expected = first.batch(actions)
    with Together(kind, 50, traj_info=ManyTrajInfo) as second:
        second.load(load_state(tmp_path / "state.zip")["states"])
        _, found = second.batch(actions)
    assert len(expected) >= B
    assert repr(found) == repr(expected)


def test_odd_attributes_of_episodes_come_back(tmp_path):
    traj = OddTrajInfo()
    traj.step(None, None, np.float32(2), False, False, {})
    traj.best, traj.path = np.float64(2.5), np.arange(3)
    save_state(tmp_path / "traj.zip", traj.state())
    other = OddTrajInfo()
    other.load_state(load_state(tmp_path / "traj.zip"))
    for one in (traj, other):
        one.step(None, None, 0.25, True, False, {})
    assert other.as_dict().keys() == traj.as_dict().keys()
    assert (other.return_, other.discounted_return, other.odd) == (2.25, 2.125, 1)
    assert isinstance(other.best, float)
    np.testing.assert_array_equal(other.path, [0, 1, 2])
