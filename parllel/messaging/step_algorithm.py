"""One step of any number of environments: actions down, physics, information up, level by level.

    hop         who writes                who reads, after the hop
    down 0      the environments          all roots
    down 1      all roots                 their subordinates
    ...         ...                       ...           the leaves' actions go to physics, in process
    up d        all agents of level d     their parents
    up 0        all roots                 the environments

Each hop is sent for all environments at once, and awaited once: with messages that take a while, a step
takes as long as its hops, however many environments there are. Within a hop agents are visited environment
by environment.

Agents in SYNC call their subordinates themselves, so an environment of theirs has one level, the roots, and
no edges.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from parllel.errors import add_note
from parllel.messaging.edge import Edge
from parllel.messaging.kafka_broker import KafkaBroker


class Walker(Protocol):
    """An agent, as the algorithm sees it."""

    agent_id: str
    action_edge: Edge | None
    info_edge: Edge | None

    @property
    def subordinates(self) -> Mapping[str, Walker]:
        """The agents right below."""

    def descend(self) -> None:
        """Do one agent's part of the way down."""

    def ascend(self, global_state: Any) -> dict[str, Any]:
        """Do one agent's part of the way up."""


@dataclass(frozen=True)
class Level:
    """The agents of one environment that are as far from it.

    actions, infos: the edges from their parents and to them; none in SYNC.
    """

    agents: tuple[Walker, ...]
    actions: tuple[Edge, ...] = ()
    infos: tuple[Edge, ...] = ()


@dataclass(frozen=True)
class Walk:
    """The way of one environment's step; `broker` is None in SYNC."""

    env_id: str
    broker: KafkaBroker | None
    levels: tuple[Level, ...]


def make_walk(env_id: str, broker: KafkaBroker | None, roots: Sequence[Walker]) -> Walk:
    """Return the way through `roots` and all agents below them; for SYNC `broker` must be None."""
    if broker is None:
        return Walk(env_id, None, (Level(tuple(roots)),))
    levels, agents = [], tuple(roots)
    while agents:
        actions = tuple(agent.action_edge for agent in agents if agent.action_edge is not None)
        infos = tuple(agent.info_edge for agent in agents if agent.info_edge is not None)
        levels.append(Level(agents, actions, infos))
        agents = tuple(below for agent in agents for below in agent.subordinates.values())
    return Walk(env_id, broker, tuple(levels))


ResultT = TypeVar("ResultT", covariant=True)


class Stepped(Protocol[ResultT]):
    """An environment, as the algorithm sees it."""

    @property
    def timestep(self) -> int:
        """How many steps the episode has had."""

    @property
    def walk(self) -> Walk:
        """The way of a step."""

    def check_step(self, actions: Any) -> None:
        """Raise if it cannot take a step with these actions."""

    def begin_step(self, actions: Any) -> None:
        """Send each root its action."""

    def run_physics(self) -> Any:
        """Let the leaves act; return the global state."""

    def finish_step(self) -> ResultT:
        """Take the roots' infos; return what the step gave."""


def step_environments(
    environments: Sequence[Stepped[ResultT]], actions: Sequence[Any]
) -> list[ResultT]:
    """Step environments by their actions, and return their results, in the same order.

    Raises:
        MissingMessageError: if a message does not come within the time-out of its broker. All these
            environments must be reset after that, and after any other error from here on.
    """
    for env, of_one in zip(environments, actions, strict=True):
        # All are checked before the first begins, so that a wrong argument leaves all as they were.
        env.check_step(of_one)
    walks = [env.walk for env in environments]
    for broker, chosen in _by_broker(walks):
        broker.begin_step(
            [walks[i].env_id for i in chosen], [environments[i].timestep for i in chosen]
        )
    for env, of_one in zip(environments, actions, strict=True):
        env.begin_step(of_one)
    walk_down(walks)
    states = [env.run_physics() for env in environments]
    walk_up(walks, states)
    return [env.finish_step() for env in environments]


def walk_down(walks: Sequence[Walk]) -> None:
    """Let all agents take and pass on their actions, level by level."""
    for depth in range(max(len(walk.levels) for walk in walks)):
        chosen = [walk for walk in walks if len(walk.levels) > depth]
        _await([(walk.broker, walk.levels[depth].actions) for walk in chosen])
        for walk in chosen:
            for agent in walk.levels[depth].agents:
                try:
                    agent.descend()
                except Exception as error:
                    add_note(error, _place(agent, walk))
                    raise


def walk_up(walks: Sequence[Walk], global_states: Sequence[Any]) -> None:
    """Let all agents observe and report, from the lowest level up.

    global_states: of each walk's environment.
    """
    for depth in reversed(range(max(len(walk.levels) for walk in walks))):
        chosen = [i for i, walk in enumerate(walks) if len(walk.levels) > depth]
        for i in chosen:
            walk, state = walks[i], global_states[i]
            for agent in walk.levels[depth].agents:
                try:
                    agent.ascend(state)
                except Exception as error:
                    add_note(error, _place(agent, walk))
                    raise
        _await([(walks[i].broker, walks[i].levels[depth].infos) for i in chosen])


def _await(hop: Iterable[tuple[KafkaBroker | None, Sequence[Edge]]]) -> None:
    """Send what agents have put on edges, and wait until each of these edges has its message."""
    by_broker: dict[int, tuple[KafkaBroker, list[Edge]]] = {}
    for broker, edges in hop:
        if broker is not None:
            by_broker.setdefault(id(broker), (broker, []))[1].extend(edges)
    # With a broker for each environment all must be sent before the first is awaited.
    if len(by_broker) > 1:
        for broker, _ in by_broker.values():
            broker.flush()
    for broker, awaited in by_broker.values():
        broker.await_messages(awaited, time.monotonic() + broker.timeout_s)


def _by_broker(walks: Sequence[Walk]) -> list[tuple[KafkaBroker, list[int]]]:
    found: dict[int, tuple[KafkaBroker, list[int]]] = {}
    for i, walk in enumerate(walks):
        if walk.broker is not None:
            found.setdefault(id(walk.broker), (walk.broker, []))[1].append(i)
    return list(found.values())


def _place(agent: Walker, walk: Walk) -> str:
    return f"in agent {agent.agent_id!r} of environment {walk.env_id!r}"
