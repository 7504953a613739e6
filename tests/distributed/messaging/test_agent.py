"""Agents that are driven without an environment, and messages beside actions and infos."""

import numpy as np
import pytest
from worlds import TREES, Node, World, draw_actions, make_agents

from parllel.distributed.messaging import (
    Agent,
    DuplicateActionError,
    ExecutionMode,
    KafkaBroker,
    KafkaMessage,
    MessageType,
    MissingMessageError,
    TopicManager,
)
from parllel.errors import WrongStateError
from parllel.runs import load_state, save_state


class Adder(Agent):
    """Adds its observation to its action, for itself or each of its subordinates."""

    def observe(self, global_state):
        return global_state

    def decide(self, observation, action):
        total = action + observation
        return dict.fromkeys(self.subordinates, total) if self.subordinates else total

    def compile_info(self, infos):
        return {"reward": self._last_action if not infos else 0, "infos": infos}


def make_adders(broker=None, mode=ExecutionMode.ASYNC):
    device = Adder("device", kafka_broker=broker, execution_mode=mode)
    return Adder(
        "grid",
        kafka_broker=broker,
        execution_mode=mode,
        parent_id="operator",
        subordinates={"device": device},
    )


def send(broker, action, env_id="default"):
    topic = TopicManager.action_topic("operator", "grid", env_id)
    fields = (env_id, "operator", "grid", 0.0, MessageType.ACTION, {"action": action})
    broker.publish(topic, KafkaMessage(*fields))


EXPECTED = {"reward": 0, "infos": {"device": {"reward": 19, "infos": {}}}}


def test_agents_alone_by_messages():
    with KafkaBroker(timeout_s=0.2) as broker:
        grid = make_adders(broker)
        for step, action in enumerate((5, 9)):
            broker.begin_step(["default"], [step])
            send(broker, action)
            info = grid.step(5)
        assert info == EXPECTED
        topic = TopicManager.info_topic("grid", "operator")
        reports = broker.consume(topic, "operator", "default")
        assert [report.payload for report in reports][-1] == EXPECTED
        # In the same step, a second action is refused, and one that was not sent is missed.
        with pytest.raises(DuplicateActionError, match="'operator' -> 'grid'"):
            send(broker, 10)
        broker.begin_step(["default"], [2])
        with pytest.raises(MissingMessageError, match="action 'operator' -> 'grid', step 2"):
            grid.step(5)


def test_agents_alone_by_calls():
    grid = make_adders(mode=ExecutionMode.SYNC)
    grid.hand(9)
    assert grid.step(5) == EXPECTED
    assert grid.take_report() == EXPECTED
    with pytest.raises(MissingMessageError, match="action 'operator' -> 'grid', step 1"):
        grid.step(5)
    with pytest.raises(
        WrongStateError, match="agent 'grid': execution_mode is ASYNC, but it has no kafka_broker"
    ):
        make_adders().step(5)


def test_renaming_an_agent_alone_takes_all_below_along():
    with KafkaBroker(timeout_s=0.2) as broker:
        grid = make_adders(broker)
        send(broker, 9)
        grid.step(5)
        send(broker, 9)
        grid.set_env_id("other")
        assert grid.subordinates["device"].env_id == "other"
        assert not broker.get_environment_topics("default")
        with pytest.raises(MissingMessageError, match="environment 'other'"):
            grid.step(5)
        grid.set_env_id("third")
        broker.begin_step(["third"], [0])
        send(broker, 9, "third")
        assert grid.step(5) == EXPECTED


def test_broadcasts_reach_mailboxes_of_their_environment_and_go_into_states(tmp_path):
    tree = TREES["grid"]

    class Listener(Node):
        def decide(self, observation, action):
            self.heard = [message.payload for message in self.mailbox]
            return super().decide(observation, action)

    with KafkaBroker() as broker:
        envs = [
            World(make_agents(tree, cls=Listener), ["grid1"], broker, env_id) for env_id in "ab"
        ]
        topics = [TopicManager.broadcast_topic("grid1", env_id) for env_id in "ab"]
        for env, topic in zip(envs, topics, strict=True):
            env.reset(seed=0)
            broker.subscribe(topic, env.agents["device1"].mailbox.append)
        fields = ("a", "grid1", "device1", 0.5, MessageType.BROADCAST, {"price": np.float32(3)})
        broker.publish(topics[0], KafkaMessage(*fields))
        broker.flush()
        save_state(tmp_path / "state.zip", envs[0].state())
        loaded = World(make_agents(tree, cls=Listener), ["grid1"], broker, "c")
        loaded.load_state(load_state(tmp_path / "state.zip"))
        (message,) = loaded.agents["device1"].mailbox
        assert message == envs[0].agents["device1"].mailbox[0]
        for env in envs:
            env.step(draw_actions(tree, np.random.default_rng(0)))
        assert envs[0].agents["device1"].heard == [{"price": np.float32(3)}]
        assert envs[1].agents["device1"].heard == envs[0].agents["device2"].heard == []
        assert envs[0].agents["device1"].mailbox == []
        state = loaded.state()
        del state["agents"]["device1"]["mailbox"]
        with pytest.raises(ValueError, match="agent 'device1': not the state of an agent"):
            loaded.load_state(state)
        for env in (*envs, loaded):
            env.close()


def test_default_decision_hands_on_a_dict_alone():
    agents = make_agents({"a": {"b": {}}}, ExecutionMode.SYNC)
    agents["a"].decide = lambda observation, action: Agent.decide(agents["a"], observation, action)
    env = World(agents, ["a"])
    env.reset(seed=0)
    with pytest.raises(
        TypeError, match=r"agent 'a': expected a dict .* each of \['b'\], got 3; or"
    ):
        env.step({"a": 3})
    env.reset()
    env.step({"a": {"b": np.zeros(2, np.float32)}})


def test_generators_of_agents_follow_the_seed_and_the_id():
    tree = TREES["grid"]
    draws = []
    for seed in (1, 1, 2):
        env = World(make_agents(tree, ExecutionMode.SYNC), ["grid1"])
        env.reset(seed=seed)
        draws.append([agent.np_random.random() for agent in env.agents.values()])
    assert draws[0] == draws[1]
    assert len({*draws[0], *draws[2]}) == 6
