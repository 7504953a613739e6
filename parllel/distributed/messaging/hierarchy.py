"""The validated hierarchy of an environment's agents, level by level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parllel.distributed.messaging.agent import Agent

# Sender of the roots' actions and recipient of their infos.
ENVIRONMENT = "environment"


@dataclass(frozen=True)
class Hierarchy:
    """The agents of one environment.

    levels: lists of agents at the same distance from the environment. `levels[0]` holds the roots.
        Within a level, agents are ordered by parent, then as in `subordinates`.
    leaves: agents without subordinates, in the order of the levels. Their actions go to the
        physics.
    """

    levels: tuple[tuple[Agent, ...], ...]
    leaves: tuple[Agent, ...]

    @property
    def roots(self) -> tuple[Agent, ...]:
        """The agents whose parent is the environment."""
        return self.levels[0]


def make_hierarchy(agents: Mapping[str, Agent], root_agents: Sequence[str]) -> Hierarchy:
    """Check that the agents form trees below the roots, and set each agent's `parent_id`.

    Raises:
        ValueError: if an agent has two parents or none, is part of a cycle, has another agent's id,
            or is missing from `agents`. The message names the agent.
        TypeError: if an agent is not an Agent.
    """
    _check_agents(agents)
    _check_roots(agents, root_agents)
    parents = _parents(agents, root_agents)
    levels = _levels(agents, root_agents)
    reached = {agent.agent_id for level in levels for agent in level}
    for agent_id in agents:
        if agent_id not in reached:
            raise ValueError(_unreached(agent_id, parents, root_agents))
    for agent_id, agent in agents.items():
        agent.parent_id = parents[agent_id]
    leaves = tuple(agent for level in levels for agent in level if not agent.subordinates)
    return Hierarchy(levels, leaves)


def _check_agents(agents: Mapping[str, Agent]) -> None:
    if not agents:
        raise ValueError("agents: expected at least one, got none")
    for key, agent in agents.items():
        if not isinstance(agent, Agent):
            raise TypeError(
                f"agents[{key!r}]: expected a parllel.distributed.messaging.Agent, got {type(agent).__name__}"
            )
        if key != agent.agent_id:
            raise ValueError(
                f"agents[{key!r}]: its agent_id is {agent.agent_id!r}; key and agent_id must be "
                "equal"
            )
        if key == ENVIRONMENT:
            raise ValueError(
                f"agents: {ENVIRONMENT!r} is reserved for the environment itself; choose another id"
            )


def _check_roots(agents: Mapping[str, Agent], root_agents: Sequence[str]) -> None:
    if isinstance(root_agents, str):
        raise TypeError(f"root_agents: expected a list of ids, got the string {root_agents!r}")
    if not root_agents:
        raise ValueError("root_agents: expected at least one id, got none")
    if len(set(root_agents)) < len(root_agents):
        raise ValueError(f"root_agents: an id occurs twice in {list(root_agents)}")
    for root in root_agents:
        if root not in agents:
            raise ValueError(
                f"root_agents: there is no agent {root!r}; agents are {sorted(agents)[:8]}"
            )


def _parents(agents: Mapping[str, Agent], root_agents: Sequence[str]) -> dict[str, str | None]:
    """Return each agent's parent according to the parents' `subordinates`; None if it has none."""
    parents: dict[str, str | None] = dict.fromkeys(agents)
    parents.update(dict.fromkeys(root_agents, ENVIRONMENT))
    for agent in agents.values():
        for key, subordinate in agent.subordinates.items():
            name = subordinate.agent_id
            if key != name:
                raise ValueError(
                    f"agent {agent.agent_id!r}: subordinates[{key!r}] is the agent {name!r}; key "
                    "and agent_id must be equal"
                )
            if agents.get(name) is not subordinate:
                raise ValueError(
                    f"agent {name!r} is a subordinate of {agent.agent_id!r}, but agents[{name!r}] is "
                    f"missing or another object; put the same object there"
                )
            if parents[name] is not None:
                raise ValueError(
                    f"agent {name!r} has two parents, {parents[name]!r} and {agent.agent_id!r}; expected one"
                )
            parents[name] = agent.agent_id
    for agent_id, agent in agents.items():
        if agent.parent_id is not None and agent.parent_id != parents[agent_id]:
            raise ValueError(
                f"agent {agent_id!r}: its parent_id is {agent.parent_id!r}, but it is "
                + _described(parents[agent_id])
            )
    return parents


def _described(parent: str | None) -> str:
    if parent is None:
        return "a subordinate of no agent; add it to the subordinates of its parent"
    if parent == ENVIRONMENT:
        return "one of root_agents, whose parent is the environment"
    return f"a subordinate of {parent!r}"


def _levels(
    agents: Mapping[str, Agent], root_agents: Sequence[str]
) -> tuple[tuple[Agent, ...], ...]:
    # Terminates although cycles are detected only later: no agent has two parents and no root is a
    # subordinate, so no cycle can be reached from a root.
    levels = [tuple(agents[root] for root in root_agents)]
    while below := tuple(sub for agent in levels[-1] for sub in agent.subordinates.values()):
        levels.append(below)
    return tuple(levels)


def _unreached(agent_id: str, parents: Mapping[str, str | None], root_agents: Sequence[str]) -> str:
    path = [agent_id]
    while (parent := parents[path[-1]]) is not None:
        if parent in path:
            circle = " -> ".join(map(repr, [*path[path.index(parent) :], parent]))
            return f"agent {agent_id!r} is in or below a cycle of parents: {circle}"
        path.append(parent)
    return (
        f"agent {path[-1]!r} has no parent; list it in root_agents ({list(root_agents)}) or among the "
        "subordinates of another agent"
    )
