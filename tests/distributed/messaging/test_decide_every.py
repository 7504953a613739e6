"""Agents that decide more rarely than the physics steps: rollouts are those of plain calls."""

from __future__ import annotations

import threading
import uuid

import numpy as np
import pytest
from worlds import (
    TREES,
    Learner,
    PlainTrained,
    PlainWorld,
    World,
    assert_equal,
    decided,
    draw,
    make_agents,
    play,
)

from parllel.distributed.messaging import (
    AgentHost,
    ExecutionMode,
    KafkaMultiAgentEnv,
    VectorizedKafkaEnv,
)
from parllel.envs.states import env_state, load_env_state
from parllel.errors import WrongStateError
from parllel.runs import load_state, save_state

TREE = TREES["five levels"]
# Rules above the policies, slower than these and than one another.
RULES = {"1": 4, "2": 2, "3": 3}
ENDS = {"ends_beyond": 1.0, "max_steps": 11}  # between two decisions of most
WAYS = {
    "calls": {"execution_mode": ExecutionMode.SYNC},
    "references": {"broker_kwargs": {"encoded": False}},
    "bytes": {},
}


class PlainSlow(PlainWorld):
    """Repeats what an agent decided until its next decision is due."""

    def __init__(self, *tree, rates, **ends):
        super().__init__(*tree, **ends)
        self.rates, self.held = rates, {}

    def go_down(self, name, below, action):
        if self.timestep % self.rates.get(name, 1) == 0:
            self.total[name] += float(action[0])
            seen, generator = self.seen[name], self.generators[name]
            self.held[name] = decided(seen, action, generator, list(below))
        if not below:
            self.pushes[name] = self.held[name]
        for sub, under in below.items():
            self.go_down(sub, under, self.held[name][sub])


class PlainSlowTrained(PlainTrained, PlainSlow):
    """The same with policies below the roots."""


class Repeated:
    """Takes several steps with the same actions, up to the end of the episode."""

    def __init__(self, plain, n):
        self.plain, self.n = plain, n
        self.reset = plain.reset

    def step(self, actions):
        returns = dict.fromkeys(actions, 0.0)
        for _ in range(self.n):
            result = self.plain.step(actions)
            returns = {name: returns[name] + reward for name, reward in result[1].items()}
            if result[2] or result[3]:
                break
        return (result[0], returns, *result[2:])


def slow_agents(rates):
    """Return agents that decide at these rates."""
    agents = make_agents(TREE, cls=Learner)
    for name, number in rates.items():
        agents[name].decide_every = number
    return agents


@pytest.fixture
def make_envs():
    """A function that makes environments of such agents; all are closed."""
    made = []

    def make(rates, n=3, **settings):
        settings = {"env_class": World, "env_kwargs": ENDS, **settings}
        made.append(
            VectorizedKafkaEnv(lambda env_id: slow_agents(rates), list(TREE), n, **settings)
        )
        return made[-1]

    yield make
    for envs in made:
        envs.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_policy_acts_above_rules_at_other_rates(way, make_envs):
    rates = {"2": 2, "3": 3, "7": 5, "6": 2}
    plain = [PlainSlow(TREE, rates=rates, **ENDS) for _ in range(3)]
    play(make_envs(rates, **WAYS[way]), plain, list(TREE), n_steps=30)


@pytest.mark.parametrize("way", WAYS)
def test_a_slow_policy_takes_several_steps_at_once(way, make_envs):
    rates = {"1": 4, "3": 3}
    plain = [Repeated(PlainSlow(TREE, rates=rates, **ENDS), 4) for _ in range(3)]
    envs = make_envs(rates, **WAYS[way])
    assert envs.envs[0].steps_per_action == 4
    play(envs, plain, list(TREE), n_steps=15)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("rates", "n"), [({**RULES, "5": 2}, 1), ({**RULES, "4": 2, "7": 2}, 2)])
def test_policies_act_below_slow_rules(rates, n, way, make_envs):
    trained = ["7", "4"]
    plain = [Repeated(PlainSlowTrained(TREE, trained, rates=rates, **ENDS), n) for _ in range(3)]
    play(make_envs(rates, trained=trained, **WAYS[way]), plain, trained, n_steps=20)


def test_slow_agents_may_run_on_hosts(make_envs, broker_address):
    kafka = {"bootstrap": broker_address("mock"), "run": f"slow-{uuid.uuid4().hex}"}
    rates = {**RULES, "5": 2}
    hosted = ["2", "3", "5"]
    host = AgentHost(lambda env_id: slow_agents(rates), hosted, wait_s=20.0, **kafka)
    thread = threading.Thread(target=host.serve)
    thread.start()
    try:
        settings = {"kafka_mode": "kafka", "broker_kwargs": kafka, "hosted": hosted}
        plain = [Repeated(PlainSlow(TREE, rates=rates, **ENDS), 4) for _ in range(2)]
        with make_envs(rates, n=2, **settings) as envs:
            play(envs, plain, list(TREE), n_steps=8)
    finally:
        thread.join()
        host.close()


@pytest.mark.parametrize("way", ["calls", "bytes"])
def test_a_state_between_decisions_continues_bit_for_bit(way, make_envs, tmp_path):
    rates, draws = {"2": 4, "3": 3}, np.random.default_rng(3)
    one, other = (make_envs(rates, n=2, env_kwargs={}, **WAYS[way]) for _ in range(2))
    one.reset(seed=8)
    one.step([draw(TREE, draws) for _ in range(2)])
    save_state(tmp_path / "state.zip", env_state(one))
    load_env_state(other, load_state(tmp_path / "state.zip"))
    for _ in range(4):
        actions = [draw(TREE, draws) for _ in range(2)]
        assert_equal(other.step(actions), one.step(actions))


def test_a_failure_between_two_decisions_leaves_a_reset_due(make_envs):
    class Fails(World):
        def apply_actions(self, actions):
            if self.env_id == "rollout_1" and self.timestep == 2:
                raise ArithmeticError("no physics")

    envs = make_envs({"1": 4}, n=2, env_class=Fails, env_kwargs={})
    envs.reset(seed=0)
    actions = [draw(TREE, np.random.default_rng(0)) for _ in range(2)]
    with pytest.raises(ArithmeticError, match="no physics"):
        envs.step(actions)
    for i in range(2):
        with pytest.raises(WrongStateError, match="step 2 failed; call reset"):
            envs.step([actions[i] if i == j else None for j in range(2)])


def test_policies_at_different_rates_are_refused():
    with pytest.raises(
        ValueError, match=r"decide_every: expected the same number .* got 3 of '7', 2 of '4'"
    ):
        KafkaMultiAgentEnv(slow_agents({"4": 2, "7": 3}), list(TREE), trained=["7", "4"])


@pytest.mark.parametrize("number", [0, -1, 2.0, True, "2"])
def test_a_rate_that_is_no_number_of_steps_is_refused(number):
    with pytest.raises(
        ValueError, match="agent 'a': decide_every: expected an int of at least 1, got"
    ):
        Learner("a", decide_every=number)
