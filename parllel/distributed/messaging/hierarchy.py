"""The validated hierarchy of an environment's agents, level by level."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

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


def trained_agents(hierarchy: Hierarchy, patterns: Sequence[str]) -> tuple[Agent, ...]:
    """Return the agents whose ids match one of the patterns, in the order of the levels.

    Raises:
        ValueError: if a pattern matches no agent, or one agent is above another.
        TypeError: if `patterns` is a str.
    """
    every = [agent for level in hierarchy.levels for agent in level]
    names = matching_names("trained", [agent.agent_id for agent in every], patterns)
    # The policy of the lower one could not observe the action of this step when both act together.
    above: dict[str, str] = {}
    for agent in every:
        top = above.get(agent.agent_id, agent.agent_id if agent.agent_id in names else None)
        if top is not None:
            above.update(dict.fromkeys(agent.subordinates, top))
    for name in sorted(names & above.keys()):
        raise ValueError(
            f"trained: {name!r} is below {above[name]!r} in the hierarchy, and both match {list(patterns)}; "
            "train them in separate runs"
        )
    return tuple(agent for agent in every if agent.agent_id in names)


def matching_names(what: str, names: Collection[str], patterns: Sequence[str]) -> frozenset[str]:
    """Return the names that match one of the patterns.

    Raises:
        ValueError: if a pattern matches no name. The message begins with `what`.
        TypeError: if `patterns` is a str.
    """
    if isinstance(patterns, str):
        raise TypeError(f"{what}: expected a list of patterns, got the string {patterns!r}")
    found: set[str] = set()
    for pattern in patterns:
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching:
            raise ValueError(
                f"{what}: {pattern!r} matches no agent; agents are {sorted(names)[:8]}"
            )
        found.update(matching)
    return frozenset(found)


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
