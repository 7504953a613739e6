"""Which agents make an environment, and which are refused."""

import pytest
from worlds import TREES, Node, World, make_agents, names

from parllel.distributed.messaging import ExecutionMode, KafkaMultiAgentEnv

SYNC = ExecutionMode.SYNC


def make_env(agents, roots):
    return World(agents, roots)


@pytest.mark.parametrize("name", TREES)
def test_levels_leaves_and_parents(name):
    tree = TREES[name]
    env = make_env(make_agents(tree, SYNC), list(tree))
    level = [*tree.items()]
    for agents in env.hierarchy.levels:
        assert [agent.agent_id for agent in agents] == [name for name, _ in level]
        level = [item for _, below in level for item in below.items()]
    assert not level
    assert {leaf.agent_id for leaf in env.hierarchy.leaves} == {
        name for name in names(tree) if not env.agents[name].subordinates
    }
    for agent in env.agents.values():
        for subordinate in agent.subordinates.values():
            assert subordinate.parent_id == agent.agent_id


def two_parents():
    shared = Node("c", execution_mode=SYNC)
    a, b = (
        Node(name, subordinates={"c": shared}, execution_mode=SYNC, parent_id=None)
        for name in ("a", "b")
    )
    return {"a": a, "b": b, "c": shared}, ["a", "b"]


def circle():
    agents = make_agents({"a": {}, "b": {}, "c": {}}, SYNC)
    agents["b"].subordinates["c"] = agents["c"]
    agents["c"].subordinates["b"] = agents["b"]
    return agents, ["a"]


def root_below_another():
    return make_agents({"a": {"b": {}}}, SYNC), ["a", "b"]


def orphan():
    return make_agents({"a": {}, "b": {"c": {}}}, SYNC), ["a"]


def left_out():
    agents = make_agents({"a": {"b": {}}}, SYNC)
    del agents["b"]
    return agents, ["a"]


def other_object():
    agents = make_agents({"a": {"b": {}}}, SYNC)
    agents["b"] = Node("b", execution_mode=SYNC)
    return agents, ["a"]


def wrong_key():
    agents = make_agents({"a": {}}, SYNC)
    return {"b": agents["a"]}, ["b"]


def reserved():
    return make_agents({"environment": {}}, SYNC), ["environment"]


def wrong_parent():
    agents = make_agents({"a": {"b": {}}}, SYNC)
    agents["b"].parent_id = "z"
    return agents, ["a"]


def mixed():
    agents = make_agents({"a": {"b": {}}}, SYNC)
    agents["b"].execution_mode = ExecutionMode.ASYNC
    return agents, ["a"]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (two_parents, "agent 'c' has two parents, 'a' and 'b'"),
        (circle, "agent 'b' is in or below a cycle of parents: 'b' -> 'c' -> 'b'"),
        (root_below_another, "agent 'b' has two parents, 'environment' and 'a'"),
        (orphan, "agent 'b' has no parent; list it in root_agents"),
        (left_out, r"agent 'b' is a subordinate of 'a', but agents\['b'\] is missing or another"),
        (
            other_object,
            r"agent 'b' is a subordinate of 'a', but agents\['b'\] is missing or another",
        ),
        (wrong_key, r"agents\['b'\]: its agent_id is 'a'"),
        (reserved, "'environment' is reserved for the environment itself"),
        (wrong_parent, "agent 'b': its parent_id is 'z', but it is a subordinate of 'a'"),
        (mixed, "must have the same execution_mode, but 'b' is in ASYNC, 'a' is in SYNC"),
        (lambda: ({}, ["a"]), "agents: expected at least one"),
        (lambda: (make_agents({"a": {}}, SYNC), []), "root_agents: expected at least one"),
        (lambda: (make_agents({"a": {}}, SYNC), ["a", "a"]), "an id occurs twice"),
        (lambda: (make_agents({"a": {}}, SYNC), ["b"]), "there is no agent 'b'"),
        (lambda: (make_agents({"a": {}}), ["a"]), "are in ASYNC mode and require a broker"),
    ],
)
def test_what_is_no_hierarchy(make, match):
    agents, roots = make()
    with pytest.raises(ValueError, match=match):
        make_env(agents, roots)


def test_wrong_types():
    agents = make_agents({"a": {}}, SYNC)
    with pytest.raises(TypeError, match="root_agents: expected a list of ids"):
        make_env(agents, "a")
    with pytest.raises(
        TypeError, match=r"expected a parllel\.distributed\.messaging\.Agent, got int"
    ):
        make_env({"a": 3}, ["a"])
    with pytest.raises(ValueError, match="agent_id: expected a non-empty string"):
        Node("")
    with pytest.raises(ValueError, match="max_steps: expected at least 1"):
        KafkaMultiAgentEnv(agents, ["a"], max_steps=0)


def test_agents_belong_to_one_environment():
    agents = make_agents({"a": {}}, SYNC)
    env = make_env(agents, ["a"])
    with pytest.raises(ValueError, match="agent 'a' already belongs to environment 'default'"):
        make_env(agents, ["a"])
    env.close()
    make_env(agents, ["a"])
