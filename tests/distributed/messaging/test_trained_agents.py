"""Policies below the roots: each acts on its parent's action of the same step, however messages pass."""

from __future__ import annotations

import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("confluent_kafka")

from worlds import (
    BOX,
    NOTHING,
    TREES,
    Learner,
    Node,
    PlainTrained,
    World,
    assert_equal,
    draw,
    make_agents,
    play,
)

from parllel.distributed.messaging import (
    AgentHost,
    ExecutionMode,
    MissingMessageError,
    VectorizedKafkaEnv,
)
from parllel.envs.states import env_state, load_env_state
from parllel.errors import WrongStateError
from parllel.runs import load_state, save_state

MAX_STEPS = 5
ENDS = {"ends_beyond": 0.5, "max_steps": MAX_STEPS}
# A tree and its trained agents, in the order of the levels.
CASES = {
    "leaves": ("grid", ["device1", "device2"]),
    "one leaf": ("grid", ["device2"]),
    "middle": ("five levels", ["3"]),
    "two levels": ("five levels", ["7", "4"]),
    "among others": ("several roots", ["b", "to"]),
    "roots": ("several roots", ["a", "b", "env_a__"]),
}
WAYS = {
    "calls": {"execution_mode": ExecutionMode.SYNC},
    "references": {"broker_kwargs": {"encoded": False}},
    "bytes": {},
    "broker each": {"broker_per_env": True},
    "kafka": {"kafka_mode": "kafka"},
}
MakeEnvs = Callable[..., VectorizedKafkaEnv]


@pytest.fixture
def make_envs(broker_address: Callable[[str], str]) -> Iterator[MakeEnvs]:
    """A function that makes environments with trained agents; all are closed."""
    made = []

    def make(
        tree, trained, n=3, cls=Learner, ends_beyond=np.inf, **settings: Any
    ) -> VectorizedKafkaEnv:
        if settings.get("kafka_mode") == "kafka":
            own = settings.get("broker_kwargs", {})
            address = own.get("bootstrap") or broker_address("mock")
            settings["broker_kwargs"] = {**own, "bootstrap": address}
        envs = VectorizedKafkaEnv(
            lambda env_id: make_agents(tree, cls=cls),
            list(tree),
            n,
            env_class=World,
            env_kwargs={"max_steps": MAX_STEPS, "ends_beyond": ends_beyond},
            trained=trained,
            **settings,
        )
        made.append(envs)
        return envs

    yield make
    for envs in made:
        envs.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_rollouts_are_those_of_plain_calls(case, way, make_envs):
    name, trained = CASES[case]
    envs = make_envs(TREES[name], trained, ends_beyond=ENDS["ends_beyond"], **WAYS[way])
    plain = [PlainTrained(TREES[name], trained, **ENDS) for _ in range(envs.num_envs)]

    def rename(number):
        envs.envs[0].set_env_id(f"renamed {number}")

    play(envs, plain, trained, n_steps=12, after_step=rename)


def test_rollouts_over_every_broker_are_those_of_plain_calls(make_envs, kafka_address):
    tree, trained = TREES["five levels"], ["7", "4"]
    kafka = {"kafka_mode": "kafka", "broker_kwargs": {"bootstrap": kafka_address}}
    envs = make_envs(tree, trained, ends_beyond=ENDS["ends_beyond"], **kafka)
    plain = [PlainTrained(tree, trained, **ENDS) for _ in range(envs.num_envs)]
    play(envs, plain, trained, n_steps=12)


def test_agents_above_may_run_on_hosts(make_envs, broker_address):
    tree, trained = TREES["five levels"], ["4"]
    kafka = {"bootstrap": broker_address("mock"), "run": f"trained-{uuid.uuid4().hex}"}
    hosted = ["1", "3", "6", "7"]
    host = AgentHost(lambda env_id: make_agents(tree, cls=Learner), hosted, wait_s=20.0, **kafka)
    thread = threading.Thread(target=host.serve)
    thread.start()
    try:
        settings = {"kafka_mode": "kafka", "broker_kwargs": kafka, "hosted": hosted}
        envs = make_envs(tree, trained, n=2, ends_beyond=ENDS["ends_beyond"], **settings)
        play(envs, [PlainTrained(tree, trained, **ENDS) for _ in range(2)], trained, n_steps=8)
        envs.close()
    finally:
        thread.join()
        host.close()


@pytest.mark.parametrize("way", ["calls", "bytes"])
def test_state_through_a_file_continues_bit_for_bit(way, make_envs, tmp_path):
    tree, trained = TREES["five levels"], ["7", "4"]
    one, other = (make_envs(tree, trained, n=2, **WAYS[way]) for _ in range(2))
    draws = np.random.default_rng(3)
    # Before a reset there is no step to continue.
    load_env_state(other.envs[0], env_state(one.envs[0]))
    one.reset(seed=8)
    one.step([draw(trained, draws) for _ in range(2)])
    save_state(tmp_path / "state.zip", env_state(one))
    load_env_state(other, load_state(tmp_path / "state.zip"))
    actions = [draw(trained, draws) for _ in range(2)]
    assert_equal(other.step(actions), one.step(actions))
    # Before the next physics step, messages have gone down once more.
    assert_equal(other.reset(), one.reset())


def test_a_state_by_calls_continues_with_messages(make_envs):
    tree, trained = TREES["grid"], ["device1", "device2"]
    one, other = make_envs(tree, trained, **WAYS["calls"]), make_envs(tree, trained)
    one.reset(seed=2)
    load_env_state(other, env_state(one))
    actions = [draw(trained, np.random.default_rng(5)) for _ in range(3)]
    assert_equal(other.step(actions), one.step(actions))


def test_infos_of_the_vector_environment_are_those_of_a_parallel_one(make_envs):
    trained = ["device1", "device2"]
    envs = make_envs(TREES["grid"], trained, n=2)
    face = envs.as_vector_env()
    assert list(face.single_action_space) == list(envs.envs[0].action_space) == trained
    face.reset(seed=0)
    _, reward, *flags, info = face.step(face.action_space.sample())
    assert not np.any(flags)
    assert all(info["alive"][name].all() for name in trained)
    assert not any(
        info[flag][name].any() for flag in ("terminated", "truncated") for name in trained
    )
    np.testing.assert_allclose(sum(info["reward"][name] for name in trained), reward)
    assert (info["device1"]["agents"] == 1).all()
    for _ in range(MAX_STEPS - 1):
        *_, truncated, info = face.step(face.action_space.sample())
    assert truncated.all()
    # The info of the last step, and what the policies would have seen next, for their values.
    final = info["final_info"]
    assert all(final["alive"][name].all() for name in trained)
    assert all(final["truncated"][name].all() for name in trained)
    assert not any(final["terminated"][name].any() for name in trained)
    assert list(info["final_obs"][0]) == trained


def test_one_trained_agent_learns_beside_functions_for_the_others(make_envs):
    envs = make_envs(TREES["grid"], ["device*"], n=2)
    asked = []

    def act(observation):
        asked.append(observation)
        return NOTHING

    face = envs.as_vector_env("device1", others={"device2": act})
    assert face.single_observation_space == BOX
    observation, _ = face.reset(seed=0)
    assert observation.shape == (2, 2)
    seen = [env.agents["device2"].policy_input for env in envs.envs]
    face.step(np.zeros((2, 2), np.float32))
    assert_equal(asked, seen)


def test_pettingzoo_accepts_the_parallel_face(make_envs):
    pytest.importorskip("pettingzoo")
    with warnings.catch_warnings():
        # Its import of tests imports environments by a way that it has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        from pettingzoo.test import parallel_api_test

    (env,) = make_envs(TREES["grid"], ["device*"], n=1).envs
    face = env.as_parallel_env()
    assert face.possible_agents == ["device1", "device2"]
    parallel_api_test(face, num_cycles=30)


def test_by_default_a_policy_sees_what_its_agent_observes(make_envs):
    class Plain(Learner):
        policy_observation = Node.policy_observation

    (env,) = make_envs(TREES["grid"], ["device1"], n=1, cls=Plain).envs
    observations, _ = env.reset(seed=0)
    assert_equal(observations, {"device1": env.agents["device1"]._last_observation})
    # As for roots, "observation" of a report precedes.
    result = env.step_roots({"device1": NOTHING})
    assert_equal(result.observations, {"device1": result.infos["device1"]["observation"]})


def test_a_rule_that_fails_above_leaves_a_reset_due(make_envs):
    class Fails(Learner):
        def decide(self, observation, action):
            if self.agent_id == "grid1" and observation[1] == 2:
                raise ArithmeticError("no rule")
            return super().decide(observation, action)

    envs = make_envs(TREES["grid"], ["device*"], n=2, cls=Fails)
    actions = [{"device1": NOTHING, "device2": NOTHING}] * 2
    envs.reset(seed=0)
    envs.step(actions)
    with pytest.raises(ArithmeticError, match="no rule"):
        envs.step(actions)
    with pytest.raises(WrongStateError, match="step 2 failed; call reset"):
        envs.step(actions)
    envs.reset()
    envs.step(actions)


def test_a_reset_that_fails_leaves_a_reset_due_in_all_environments(make_envs):
    class Fails(Learner):
        def observe(self, global_state):
            if self.env_id == "rollout_1":
                raise ArithmeticError("nothing to see")
            return super().observe(global_state)

    envs = make_envs(TREES["grid"], ["device*"], n=2, cls=Fails)
    with pytest.raises(ArithmeticError, match="nothing to see"):
        envs.reset(seed=0)
    # Its messages have not gone down either.
    with pytest.raises(WrongStateError, match="'rollout_0': its last reset failed; call reset"):
        envs.step([{"device1": NOTHING, "device2": NOTHING}, None])
    envs.reset([0])
    envs.step([{"device1": NOTHING, "device2": NOTHING}, None])


@pytest.mark.parametrize(
    ("trained", "error", "message"),
    [
        (
            ["device_*"],
            ValueError,
            r"trained: 'device_\*' matches no agent; agents are \['device1'",
        ),
        ("device*", TypeError, r"trained: expected a list of patterns, got the string 'device\*'"),
        (["*"], ValueError, "trained: 'device1' is below 'grid1' in the hierarchy, and both match"),
    ],
)
def test_unusable_patterns_are_refused(make_envs, trained, error, message):
    with pytest.raises(error, match=message):
        make_envs(TREES["grid"], trained)


def test_agents_far_below_one_another_are_refused(make_envs):
    with pytest.raises(ValueError, match="trained: '5' is below '2' in the hierarchy"):
        make_envs(TREES["five levels"], ["2", "5"])


def test_hosted_agents_are_refused(broker_address, make_envs):
    kafka = {"run": f"trained-{uuid.uuid4().hex}", "timeout_s": 1.0}
    with pytest.raises(ValueError, match="trained: 'device1' is also in hosted"):
        make_envs(
            TREES["grid"], ["device1"], kafka_mode="kafka", broker_kwargs=kafka, hosted=["device*"]
        )


def test_wrong_actions_and_states_are_refused(make_envs):
    (env,) = make_envs(TREES["grid"], ["device*"], n=1).envs
    env.reset(seed=0)
    with pytest.raises(MissingMessageError, match=r"-> 'device2'.*expected an action for each of"):
        env.step({"device1": NOTHING})
    both = {"device1": NOTHING, "device2": NOTHING}
    with pytest.raises(ValueError, match=r"got actions for \['grid1'\], which are not trained"):
        env.step({**both, "grid1": NOTHING})
    env.step(both)
    (one,) = make_envs(TREES["grid"], ["device1"], n=1).envs
    with pytest.raises(ValueError, match=r"trained agents are \['device1'\], got one with"):
        one.load_state(env.state())


def test_ids_that_are_keys_of_the_info_are_refused(make_envs):
    tree = {"root": {"reward": {}, "other": {}}}
    envs = make_envs(tree, ["reward", "other"], n=1)
    with pytest.raises(ValueError, match="as_vector_env: agent 'reward': expected other ids"):
        envs.as_vector_env()
    assert list(envs.envs[0].as_parallel_env().possible_agents) == ["reward", "other"]
