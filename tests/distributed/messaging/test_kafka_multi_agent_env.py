"""One environment: all modes and faces give the rollouts of plain calls; ends, errors, renames, states."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from worlds import (
    TREES,
    Node,
    PlainWorld,
    World,
    assert_equal,
    draw_actions,
    make_agents,
)

from parllel.distributed.messaging import (
    ExecutionMode,
    KafkaBroker,
    KafkaMultiAgentEnv,
    MessagingError,
    MissingMessageError,
)
from parllel.envs import ParallelEnvAdapter
from parllel.envs.states import NoStateError, env_state, load_env_state
from parllel.errors import ClosedError, WrongStateError
from parllel.runs import load_state, save_state

SYNC, ASYNC = ExecutionMode.SYNC, ExecutionMode.ASYNC
# How messages pass: by calls, by reference, as bytes.
WAYS = {"calls": (SYNC, None), "references": (ASYNC, False), "bytes": (ASYNC, True)}


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


@pytest.fixture
def make_world(request):
    """Return a function that makes a World, and whatever it needs."""
    made = []

    def make(tree, way=(ASYNC, True), cls=World, agent_cls=Node, env_id="default", **settings):
        mode, encoded = way
        broker = None
        if mode is ASYNC:
            broker = settings.pop("kafka_broker", None) or KafkaBroker(encoded=encoded)
            made.append(broker)
        env = cls(make_agents(tree, mode, agent_cls), list(tree), broker, env_id, **settings)
        made.append(env)
        return env

    yield make
    for one in reversed(made):
        one.close()


@pytest.mark.parametrize("name", TREES)
def test_rollouts_are_those_of_plain_calls(name, way, make_world):
    tree = TREES[name]
    env, plain = make_world(tree, way, max_steps=7), PlainWorld(tree, max_steps=7)
    draws = np.random.default_rng(1)
    for seed in (3, None, 4):
        assert_equal(env.reset(seed=seed)[0], plain.reset(seed))
        truncated = False
        while not truncated:
            actions = draw_actions(tree, draws)
            result, expected = env.step_roots(actions), plain.step(actions)
            truncated = expected[3]
            assert_equal(tuple(result), expected)
    assert env.timestep == 7


def test_root_receives_the_action_of_the_policy(way, make_world):
    class Kept(Node):
        def decide(self, observation, action):
            self.came = action
            return super().decide(observation, action)

    env = make_world(TREES["grid"], way, agent_cls=Kept)
    env.reset(seed=0)
    env.step({"grid1": np.array([0.25, 8.0], np.float32)})
    np.testing.assert_array_equal(env.agents["grid1"].came, np.array([0.25, 8.0], np.float32))
    assert env.agents["grid1"].parent_id == "environment"


def test_gymnasium_accepts_the_environment(way, make_world):
    env = make_world(TREES["several roots"], way, max_steps=5)
    with warnings.catch_warnings():
        # Boxes without bounds, and an environment without a spec.
        warnings.simplefilter("ignore", UserWarning)
        check_env(env, skip_render_check=True)
    env.reset(seed=1)
    _, reward, _, _, info = env.step(env.action_space.sample())
    assert reward == pytest.approx(sum(info["rewards"].values()))
    assert list(info["agents"]) == env.root_agents


def test_pettingzoo_accepts_the_parallel_face(way, make_world):
    pytest.importorskip("pettingzoo")
    with warnings.catch_warnings():
        # Its import of tests imports environments by a way that it has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        from pettingzoo.test import parallel_api_test

    face = make_world(TREES["several roots"], way, max_steps=9).as_parallel_env()
    parallel_api_test(face, num_cycles=30)


def test_state_goes_through_the_adapter_of_parallel_environments(make_world):
    tree = TREES["several roots"]

    def make():
        return ParallelEnvAdapter(make_world(tree, max_steps=50).as_parallel_env())

    one, other = make(), make()
    one.reset(seed=5)
    other.reset(seed=6)
    draws = np.random.default_rng(2)
    one.step(draw_actions(tree, draws))
    load_env_state(other, env_state(one))
    for _ in range(5):
        actions = draw_actions(tree, draws)
        assert_equal(other.step(actions)[:4], one.step(actions)[:4])


def test_episode_ends_and_must_be_reset(way, make_world):
    env = make_world(TREES["grid"], way, ends_beyond=0.5, max_steps=4)
    plain = PlainWorld(TREES["grid"], ends_beyond=0.5, max_steps=4)
    draws = np.random.default_rng(0)
    seen = set()
    for seed in range(30):
        env.reset(seed=seed)
        plain.reset(seed)
        ended = False
        while not ended:
            actions = draw_actions(TREES["grid"], draws)
            result = env.step_roots(actions)
            assert_equal(tuple(result), plain.step(actions))
            ended = result.terminated or result.truncated
        seen.add((result.terminated, result.truncated))
        with pytest.raises(WrongStateError, match="environment 'default': its episode has ended"):
            env.step(actions)
    assert len(seen) >= 2  # both kinds of ends occurred


def test_action_for_each_root_and_no_other(way, make_world):
    env = make_world(TREES["several roots"], way)
    with pytest.raises(WrongStateError, match="it was never reset"):
        env.step({})
    env.reset(seed=0)
    actions = draw_actions(TREES["several roots"], np.random.default_rng(0))
    with pytest.raises(
        MissingMessageError, match=r"'default', action 'environment' -> 'b', step 0: "
    ):
        env.step({name: actions[name] for name in ("a", "env_a__")})
    with pytest.raises(ValueError, match=r"got actions for \['a_'\], which are not roots"):
        env.step({**actions, "a_": actions["a"]})
    env.step(actions)  # nothing had begun


@pytest.mark.parametrize("direction", ["down", "up"])
def test_message_that_an_agent_does_not_send_is_missed(direction, way, make_world):
    class Silent(Node):
        silent = False

        def decide(self, observation, action):
            out = super().decide(observation, action)
            if self.silent and direction == "down":
                del out["device2"]
            return out

        def _send_info_to_parent(self, info):
            if not (self.silent and direction == "up"):
                super()._send_info_to_parent(info)

    env = make_world(TREES["grid"], way, agent_cls=Silent, env_id="here")
    if env.kafka_broker is not None:
        # An action that a decision leaves out is missed at once: no time-out of the broker is waited for.
        env.kafka_broker.timeout_s = 0.2 if direction == "up" else 1000.0
    env.reset(seed=0)
    actions = draw_actions(TREES["grid"], np.random.default_rng(0))
    env.step(actions)
    env.agents["grid1" if direction == "down" else "device2"].silent = True
    channel = {"down": ("grid1", "device2"), "up": ("device2", "grid1")}[direction]
    with pytest.raises(
        MissingMessageError, match="'here', .* {!r} -> {!r}, step 1: ".format(*channel)
    ):
        env.step(actions)
    with pytest.raises(WrongStateError, match="step 1 failed; call reset"):
        env.step(actions)
    for agent in env.agents.values():
        agent.silent = False
    plain = PlainWorld(TREES["grid"])
    assert_equal(env.reset(seed=9)[0], plain.reset(9))
    assert_equal(tuple(env.step_roots(actions)), plain.step(actions))


def test_action_for_an_agent_that_is_no_subordinate(way, make_world):
    class Confused(Node):
        def decide(self, observation, action):
            return {"device1": action, "device2": action, "device3": action}

    env = make_world(TREES["grid"], way, agent_cls=Confused)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"agent 'grid1'.*\['device1', 'device2'\]"):
        env.step({"grid1": np.zeros(2, np.float32)})


def test_error_of_an_agent_names_it(way, make_world):
    class Failing(Node):
        def observe(self, global_state):
            if self.agent_id == "device2" and global_state["timestep"]:
                raise RuntimeError("no sight")
            return super().observe(global_state)

    env = make_world(TREES["grid"], way, agent_cls=Failing, env_id="here")
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="no sight") as error:
        env.step({"grid1": np.zeros(2, np.float32)})
    # In SYNC the parent is on the way when it happens.
    assert any("of environment 'here'" in note for note in error.value.__notes__)


def test_rename_in_the_middle_of_an_episode(make_world):
    tree, broker = TREES["grid"], KafkaBroker()
    env = make_world(tree, kafka_broker=broker, env_id="old")
    plain = PlainWorld(tree)
    env.reset(seed=1)
    plain.reset(1)
    draws = np.random.default_rng(0)
    for new in ("a", "a_", "a__b", "old"):
        actions = draw_actions(tree, draws)
        assert_equal(tuple(env.step_roots(actions)), plain.step(actions))
        old = env.env_id
        env.agents["device1"].set_env_id(new)
        assert {agent.env_id for agent in env.agents.values()} == {env.env_id} == {new}
        assert not broker.get_environment_topics(old)


def test_message_in_flight_does_not_reach_the_next_taker_of_the_id(make_world):
    tree, broker = TREES["grid"], KafkaBroker()
    env = make_world(tree, kafka_broker=broker, env_id="one")
    env.reset(seed=1)
    env.agents["device1"].info_channel.put({"reward": 1e6}, 0.0)
    first = env.lease
    env.set_env_id("two")
    other = make_world(tree, kafka_broker=broker, env_id="one")
    assert other.lease > first
    plain = PlainWorld(tree)
    other.reset(seed=2)
    plain.reset(2)
    actions = draw_actions(tree, np.random.default_rng(0))
    assert_equal(tuple(other.step_roots(actions)), plain.step(actions))


def test_message_of_the_episode_before_does_not_pass_for_one_of_this_step(make_world):
    tree = TREES["grid"]
    env, plain = make_world(tree), PlainWorld(tree)
    env.reset(seed=1)
    env.agents["device1"].info_channel.put({"reward": 1e6}, 0.0)
    env.agents["grid1"].action_channel.put({"action": np.full(2, 1e6)}, 0.0)
    assert_equal(env.reset(seed=2)[0], plain.reset(2))
    actions = draw_actions(tree, np.random.default_rng(0))
    assert_equal(tuple(env.step_roots(actions)), plain.step(actions))


def test_id_that_is_taken(make_world):
    broker = KafkaBroker()
    env = make_world(TREES["grid"], kafka_broker=broker, env_id="one")
    with pytest.raises((MessagingError, WrongStateError), match="'one'"):
        World(make_agents(TREES["grid"]), ["grid1"], broker, "one")
    other = make_world(TREES["grid"], kafka_broker=broker, env_id="two")
    with pytest.raises((MessagingError, WrongStateError), match="'one'"):
        other.set_env_id("one")
    assert other.env_id == "two"
    env.close()
    env.close()
    other.set_env_id("one")
    other.reset(seed=0)
    with pytest.raises(ClosedError, match="environment 'one': used after it was closed"):
        env.reset()


def test_state_through_a_file_continues_bit_for_bit(way, make_world, tmp_path):
    tree = TREES["five levels"]
    env = make_world(tree, way, max_steps=6)
    draws = np.random.default_rng(3)
    env.reset(seed=8)
    actions = [draw_actions(tree, draws) for _ in range(10)]
    for of_one in actions[:4]:
        env.step(of_one)
    save_state(tmp_path / "state.zip", env_state(env))
    loaded = make_world(tree, way, max_steps=6, env_id="elsewhere")
    load_env_state(loaded, load_state(tmp_path / "state.zip"))
    for i, of_one in enumerate(actions[4:]):
        came, expected = loaded.step_roots(of_one), env.step_roots(of_one)
        assert_equal(tuple(came), tuple(expected))
        if came.truncated:
            assert i == 1
            assert_equal(loaded.reset()[0], env.reset()[0])


def test_state_before_the_first_reset_leaves_out_physics_that_it_makes(make_world):
    class Late(World):
        def reset_physics(self):
            super().reset_physics()
            self.made = self.np_random.random()

        def physics_state(self):
            return {**super().physics_state(), "made": self.made}

    env, loaded = (make_world(TREES["grid"], cls=Late, env_id=name) for name in ("a", "b"))
    state = env_state(env)
    loaded.reset(seed=1)
    load_env_state(loaded, state)
    with pytest.raises(WrongStateError, match="never reset"):
        loaded.step({"grid1": np.zeros(2, np.float32)})
    env.reset(seed=2)
    loaded.reset(seed=2)
    assert env.made == loaded.made
    assert env_state(env) is not None


def test_states_that_would_not_be_whole_are_refused(make_world):
    class Counts(Node):
        def reset(self):
            super().reset()
            self.count = 0

        state = Node.__mro__[1].state

    class Moves(KafkaMultiAgentEnv):
        def apply_actions(self, actions):
            self.moved = True

    with pytest.raises(NoStateError, match="agent 'device1': Counts overrides reset"):
        make_world(TREES["grid"], agent_cls=Counts).state()
    with pytest.raises(NoStateError, match=r"Moves has its own physics \(apply_actions\)"):
        make_world(TREES["grid"], cls=Moves).state()
    env = make_world(TREES["grid"])
    env.agents["device1"]._last_observation = object()
    with pytest.raises(NoStateError, match="agent 'device1': _last_observation: expected numbers"):
        env.state()
    state = make_world(TREES["grid"]).state()
    with pytest.raises(ValueError, match=r"expected the state of the agents \['only'\]"):
        make_world(TREES["no subordinates"]).load_state(state)


def test_agents_alone_with_default_physics():
    class Plain(Node):
        def observe(self, global_state):
            return np.array([global_state["timestep"], len(global_state["actions"])], np.float32)

        def decide(self, observation, action):
            if self.subordinates:
                return dict.fromkeys(self.subordinates, action)
            return action

        def compile_info(self, infos):
            return super(Node, self).compile_info(infos)

    env = KafkaMultiAgentEnv(make_agents(TREES["grid"], SYNC, Plain), ["grid1"])
    env.reset(seed=0)
    observation, reward, *_ = env.step({"grid1": 3})
    np.testing.assert_array_equal(observation["grid1"], [1.0, 2.0])
    assert (reward, env.get_global_state()["actions"]) == (0.0, {"device1": 3, "device2": 3})


def test_environment_without_spaces_runs_and_its_faces_say_what_they_need():
    agents = make_agents(TREES["grid"], SYNC)
    agents["grid1"].action_space = None
    env = World(agents, ["grid1"])
    env.reset(seed=0)
    env.step({"grid1": np.zeros(2, np.float32)})
    assert isinstance(env.observation_space, gym.spaces.Dict)
    with pytest.raises(ValueError, match="agent 'grid1' has no action_space"):
        env.as_parallel_env()
