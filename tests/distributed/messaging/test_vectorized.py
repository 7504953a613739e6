"""Many environments over one broker: each does what it would do alone, in all modes, faces and places."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from worlds import TREES, PlainWorld, World, assert_equal, draw_actions, make_agents

from parllel.distributed.messaging import (
    ExecutionMode,
    KafkaBroker,
    MissingMessageError,
    VectorizedKafkaEnv,
)
from parllel.envs.states import env_state, load_env_state
from parllel.errors import ClosedError, WrongStateError
from parllel.runs import load_state, save_state

# How messages pass: by calls, by reference, as bytes, and as bytes over a broker each.
WAYS = {
    "calls": {"execution_mode": ExecutionMode.SYNC},
    "references": {"broker_kwargs": {"encoded": False}},
    "bytes": {},
    "broker each": {"broker_per_env": True},
}
N = 5


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


@pytest.fixture
def make_envs():
    made = []

    def make(tree, n=N, **settings):
        kwargs = settings.pop("env_kwargs", {})
        envs = VectorizedKafkaEnv(
            lambda env_id: make_agents(tree),
            list(tree),
            n,
            env_class=World,
            env_kwargs=kwargs,
            **settings,
        )
        made.append(envs)
        return envs

    yield make
    for envs in made:
        envs.close()


@pytest.mark.parametrize("name", TREES)
def test_any_subset_is_stepped_and_reset_as_each_would_be_alone(name, way, make_envs):
    tree = TREES[name]
    ends = {"ends_beyond": 0.8, "max_steps": 5}
    envs, plain = (
        make_envs(tree, env_kwargs=ends, **way),
        [PlainWorld(tree, **ends) for _ in range(N)],
    )
    draws = np.random.default_rng(7)
    assert_equal(envs.reset(seed=10), [one.reset(10 + i) for i, one in enumerate(plain)])
    ended = [False] * N
    resets = 0
    for _ in range(25):
        actions = [
            None if ended[i] or draws.random() < 0.3 else draw_actions(tree, draws)
            for i in range(N)
        ]
        observations, rewards, dones, infos = envs.step(actions)
        for i, of_one in enumerate(actions):
            if of_one is None:
                assert observations[i] is rewards[i] is dones[i] is infos[i] is None
                continue
            expected = plain[i].step(of_one)
            ended[i] = expected[2] or expected[3]
            came = (observations[i], rewards[i], dones[i], infos[i])
            assert_equal(came, (*expected[:2], dict.fromkeys(tree, ended[i]), expected[4]))
            assert (envs.envs[i].terminated, envs.envs[i].truncated) == expected[2:4]
        chosen = [
            i for i in range(N) if (ended[i] and draws.random() < 0.7) or draws.random() < 0.05
        ]
        draws.shuffle(chosen)
        assert_equal(envs.reset(chosen), [plain[i].reset() for i in chosen])
        resets += len(chosen)
        for i in chosen:
            ended[i] = False
    assert resets > 3


def test_one_that_has_ended_must_be_left_out_or_reset(way, make_envs):
    tree = TREES["grid"]
    envs = make_envs(tree, 2, env_kwargs={"max_steps": 1}, **way)
    actions = [draw_actions(tree, np.random.default_rng(i)) for i in range(2)]
    envs.reset(seed=0)
    envs.step([actions[0], None])
    with pytest.raises(WrongStateError, match="environment 'rollout_0': its episode has ended"):
        envs.step(actions)
    # The other one was not touched by that.
    assert envs.step([None, actions[1]])[2][1] == {"grid1": True}


def test_all_of_a_step_that_failed_must_be_reset(way, make_envs):
    tree = TREES["grid"]
    # More than are stepped together, so that some have finished when one of the last fails.
    n = 40
    envs, plain = make_envs(tree, n, **way), [PlainWorld(tree) for _ in range(n)]
    actions = [draw_actions(tree, np.random.default_rng(i)) for i in range(n)]
    envs.reset(seed=0)
    envs.step(actions)

    def fail(pushes):
        raise RuntimeError("no physics")

    envs.envs[38].apply_actions = fail
    with pytest.raises(RuntimeError, match="no physics"):
        envs.step([None, *actions[1:]])
    del envs.envs[38].apply_actions
    envs.step([actions[0], *[None] * (n - 1)])
    for i in (1, 38, 39):
        with pytest.raises(WrongStateError, match=f"'rollout_{i}': step 1 failed; call reset"):
            envs.step([*[None] * i, actions[i], *[None] * (n - 1 - i)])
    assert_equal(envs.reset(seed=5), [one.reset(5 + i) for i, one in enumerate(plain)])
    assert_equal(
        envs.step(actions)[0], [one.step(of)[0] for one, of in zip(plain, actions, strict=True)]
    )


def test_renames_in_the_middle_of_episodes(make_envs):
    tree = TREES["grid"]
    envs, plain = make_envs(tree, 3), [PlainWorld(tree) for _ in range(3)]
    envs.reset(seed=0)
    for i, one in enumerate(plain):
        one.reset(i)
    draws = np.random.default_rng(0)
    for step in range(6):
        # The id that another had before is taken at once.
        envs.set_env_id(step % 3, f"spare {step}")
        if step:
            envs.set_env_id((step + 1) % 3, "rollout_0")
            envs.set_env_id((step + 1) % 3, f"again {step}")
        actions = [draw_actions(tree, draws) for _ in range(3)]
        observations, rewards, _, _ = envs.step(actions)
        expected = [one.step(of_one) for one, of_one in zip(plain, actions, strict=True)]
        assert_equal(observations, [of_one[0] for of_one in expected])
        assert_equal(rewards, [of_one[1] for of_one in expected])


def test_arguments_are_checked(make_envs):
    tree = TREES["grid"]
    with pytest.raises(ValueError, match="num_envs: expected an int of at least 1, got 0"):
        make_envs(tree, 0)
    with KafkaBroker() as broker:
        with pytest.raises(ValueError, match="broker: cannot be combined"):
            make_envs(tree, 2, broker=broker, broker_per_env=True)
        envs = make_envs(tree, 2, broker=broker)
        envs.close()
        envs.close()
        # Neither closed nor left with anything.
        assert not broker.get_environment_topics("rollout_0")
        envs = make_envs(tree, 2, broker=broker)
        envs.reset(seed=0)
        for wrong in ([None], 3, {"grid1": 0}):
            with pytest.raises(ValueError, match="actions: expected a list of 2, one dict or None"):
                envs.step(wrong)
        with pytest.raises(TypeError, match=r"'rollout_1': actions: expected a dict .* got 3"):
            envs.step([None, 3])
        with pytest.raises(
            MissingMessageError, match=r"for each of \['grid1'\], got actions also for \['grid'\]"
        ):
            envs.step([{"grid": 1}, None])
        for wrong in ([2], [-1], [0, 0]):
            with pytest.raises(ValueError, match="env_idx: expected different numbers from 0 to 1"):
                envs.reset(wrong)
        with pytest.raises(
            ValueError, match=r"seed: expected one seed for each of the environments \[0, 1\]"
        ):
            envs.reset(seed=[1])
        with pytest.raises(ValueError, match="root: expected one of"):
            envs.as_vector_env("grid2")
        envs.close()
    with pytest.raises(ClosedError, match="VectorizedKafkaEnv: used after it was closed"):
        envs.reset()


def test_agents_of_one_factory_call_for_all(make_envs):
    agents = make_agents(TREES["grid"])
    with pytest.raises(ValueError, match="already belongs to environment 'rollout_0'"):
        VectorizedKafkaEnv(lambda env_id: agents, ["grid1"], 2)


def plain_vector(tree, mode, n=N, **ends):
    """Return gymnasium's own vector environment of the same rollouts, of one root by plain calls."""

    class One(gym.Env):
        def __init__(self):
            self.plain = PlainWorld(tree, **ends)
            space = World(make_agents(tree, ExecutionMode.SYNC), list(tree))
            only = len(tree) == 1
            self.root = next(iter(tree)) if only else None
            self.observation_space = (
                space.observation_space["grid1"] if only else space.observation_space
            )
            self.action_space = space.action_space["grid1"] if only else space.action_space

        def view(self, by_root):
            return by_root[self.root] if self.root else by_root

        def reset(self, *, seed=None, options=None):
            return self.view(self.plain.reset(seed)), {}

        def step(self, action):
            actions = {self.root: action} if self.root else action
            observations, rewards, terminated, truncated, _ = self.plain.step(actions)
            return self.view(observations), sum(rewards.values()), terminated, truncated, {}

    return SyncVectorEnv([One] * n, autoreset_mode=mode)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", ["grid", "several roots"])
def test_vector_environment_does_what_gymnasiums_own_does(name, mode, make_envs):
    tree, ends = TREES[name], {"ends_beyond": 0.7, "max_steps": 6}
    face = make_envs(tree, env_kwargs=ends).as_vector_env(autoreset_mode=mode)
    own = plain_vector(tree, mode, **ends)
    assert face.single_observation_space == own.single_observation_space
    assert face.action_space == own.action_space
    assert face.metadata["autoreset_mode"] is mode
    seeds = [5, 9, 2, 2, 7]
    assert_equal(face.reset(seed=seeds)[0], own.reset(seed=seeds)[0])
    face.action_space.seed(0)
    finals = 0
    for _ in range(30):
        actions = face.action_space.sample()
        came, expected = face.step(actions), own.step(actions)
        assert_equal(came[:4], expected[:4])
        assert came[1].dtype == np.float64
        assert ("final_obs" in came[4]) is ("final_obs" in expected[4])
        if "final_obs" in expected[4]:
            finals += 1
            assert_equal(list(came[4]["final_obs"]), list(expected[4]["final_obs"]))
            assert_equal(came[4]["_final_obs"], expected[4]["_final_obs"])
        ended = came[2] | came[3]
        if mode is AutoresetMode.DISABLED and ended.any():
            with pytest.raises(WrongStateError, match="have ended; reset them"):
                face.step(actions)
            assert_equal(
                face.reset(options={"reset_mask": ended})[0],
                own.reset(options={"reset_mask": ended})[0],
            )
    assert (finals > 0) is (mode is AutoresetMode.SAME_STEP)
    face.close()
    face.close()


def test_vector_environment_of_one_of_several_roots(make_envs):
    tree = TREES["several roots"]
    others = {"b": lambda observation: -observation, "env_a__": lambda observation: observation * 0}
    with pytest.raises(
        ValueError, match=r"others: expected functions for the agents \['b', 'env_a__'\]"
    ):
        make_envs(tree).as_vector_env("a")
    face = make_envs(tree).as_vector_env("a", others=others)
    plain = [PlainWorld(tree) for _ in range(N)]
    observation, _ = face.reset(seed=3)
    seen = [one.reset(3 + i) for i, one in enumerate(plain)]
    for _ in range(4):
        np.testing.assert_array_equal(observation, np.stack([of_one["a"] for of_one in seen]))
        actions = face.action_space.sample()
        observation, reward, *_, infos = face.step(actions)
        results = [
            one.step({"a": action, **{name: act(of_one[name]) for name, act in others.items()}})
            for one, action, of_one in zip(plain, actions, seen, strict=True)
        ]
        seen = [of_one[0] for of_one in results]
        np.testing.assert_array_equal(reward, [of_one[1]["a"] for of_one in results])
        np.testing.assert_array_equal(infos["agents"], 3)


def test_actions_and_observations_are_the_callers(make_envs):
    envs = make_envs(TREES["grid"], 2, broker_kwargs={"encoded": False})
    face = envs.as_vector_env()
    first, _ = face.reset(seed=0)
    kept, actions = first.copy(), np.ones((2, 2), np.float32)
    face.step(actions)
    actions[:] = 7.0
    np.testing.assert_array_equal(first, kept)
    face.step(actions * 0)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_state_through_a_file_continues_bit_for_bit(mode, way, make_envs, tmp_path):
    tree, ends = TREES["grid"], {"ends_beyond": 0.7, "max_steps": 6}
    face, other = (
        make_envs(tree, env_kwargs=ends, **way).as_vector_env(autoreset_mode=mode) for _ in range(2)
    )
    face.action_space.seed(1)
    face.reset(seed=1)
    other.reset(seed=2)

    def step(one, actions):
        result = one.step(actions)
        if mode is AutoresetMode.DISABLED and (result[2] | result[3]).any():
            return (*result[:4], one.reset(options={"reset_mask": result[2] | result[3]})[0])
        return result[:4]

    for _ in range(9):
        step(face, face.action_space.sample())
    save_state(tmp_path / "state.zip", env_state(face))
    load_env_state(other, load_state(tmp_path / "state.zip"))
    for _ in range(9):
        actions = face.action_space.sample()
        assert_equal(step(other, actions), step(face, actions))


def test_state_of_another_number_of_environments(make_envs):
    tree = TREES["grid"]
    state = make_envs(tree, 2).state()
    with pytest.raises(ValueError, match="expected the states of 3 environments"):
        make_envs(tree, 3).load_state(state)


def test_two_share_a_broker(make_envs):
    tree = TREES["several roots"]
    with KafkaBroker() as broker:
        both = [
            make_envs(tree, 3, broker=broker, env_prefix=prefix) for prefix in ("left_", "right_")
        ]
        alone = [make_envs(tree, 3) for _ in both]
        assert [env.env_id for env in both[1].envs] == ["right_0", "right_1", "right_2"]
        generator = np.random.default_rng(0)
        for seed, (one, other) in enumerate(zip(both, alone, strict=True)):
            assert_equal(one.reset(seed=seed), other.reset(seed=seed))
        for _ in range(3):
            for one, other in zip(both, alone, strict=True):
                actions = [draw_actions(tree, generator) for _ in range(3)]
                assert_equal(one.step(actions), other.step(actions))
        with pytest.raises(WrongStateError, match=r"'left_0' is in use; .*env_prefix"):
            make_envs(tree, 1, broker=broker, env_prefix="left_")
        both[0].close()
        make_envs(tree, 1, broker=broker, env_prefix="left_").reset()
    with pytest.raises(ValueError, match="env_prefix: expected an id, got ''"):
        make_envs(tree, 1, env_prefix="")
