"""One step of any number of environments: actions down, physics, information up, level by level.

    hop         who writes                who reads, after the hop
    down 0      the environments          all roots
    down 1      all roots                 their subordinates
    ...         ...                       ...           the leaves' actions go to physics, in process
    up d        all agents of level d     their parents
    up 0        all roots                 the environments

Environments are visited in a few groups: while the messages of one group are on their way, the agents of the
next compute. So a step takes about as long as its hops, if messages take a while, however many environments
there are. Within a group agents are visited environment by environment.

Agents in SYNC call their subordinates themselves, so an environment of theirs has one level, the roots, and
no edges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from parllel.distributed.messaging.edge import Edge
from parllel.distributed.messaging.kafka_broker import KafkaBroker
from parllel.errors import add_note

# More groups hide more of the computing, and cost more calls; of few environments there is little to hide.
_MOST_GROUPS, _LEAST_IN_GROUP = 4, 16


class Walker(Protocol):
    """An agent, as the algorithm sees it."""

    agent_id: str
    handed: Any
    reported: Any
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

    linked: those of them that have edges from and to a parent, `actions` and `infos`; none in SYNC.
    """

    agents: tuple[Walker, ...]
    linked: tuple[Walker, ...] = ()
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
        linked = tuple(agent for agent in agents if agent.action_edge and agent.info_edge)
        actions = tuple(agent.action_edge for agent in linked if agent.action_edge)
        infos = tuple(agent.info_edge for agent in linked if agent.info_edge)
        levels.append(Level(agents, linked, actions, infos))
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

    def abandon_step(self) -> None:
        """Require a reset, as the step has failed."""

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
    # References are there at once: agents that step with few others are still in the processor's cache then.
    at_once = all(walk.broker is not None and not walk.broker.encoded for walk in walks)
    n, size = len(walks), _LEAST_IN_GROUP if at_once else len(walks)
    try:
        return [
            result
            for start in range(0, n, size)
            for result in _step_together(
                environments[start : start + size], actions[start : start + size]
            )
        ]
    except BaseException:
        # Those that had finished too: nothing will return their results.
        for env in environments:
            env.abandon_step()
        raise


def _step_together(
    environments: Sequence[Stepped[ResultT]], actions: Sequence[Any]
) -> list[ResultT]:
    walks = [env.walk for env in environments]
    for group in _groups(len(walks)):
        for i in group:
            environments[i].begin_step(actions[i])
        _flush([walks[i] for i in group])
    walk_through(walks, lambda i: environments[i].run_physics())
    _take_infos(walks, 0)
    return [env.finish_step() for env in environments]


def walk_through(walks: Sequence[Walk], run_physics: Callable[[int], Any]) -> None:
    """Let all agents pass on their actions, physics run, and all agents report, level by level.

    run_physics: lets the leaves of the i-th walk act, and returns its global state.
    """
    last = max(len(walk.levels) for walk in walks) - 1
    groups = _groups(len(walks))
    states: dict[int, Any] = {}
    for depth in range(last):
        for group in groups:
            _descend([walks[i] for i in group], depth)
    for group in groups:
        # In one go, so that the reports of a group are on their way while the others' leaves act.
        _descend([walks[i] for i in group], last)
        states.update((i, run_physics(i)) for i in group)
        _ascend([(walks[i], states[i]) for i in group], last)
    for depth in reversed(range(last)):
        for group in groups:
            _ascend([(walks[i], states[i]) for i in group], depth)


def _descend(walks: Sequence[Walk], depth: int) -> None:
    chosen = [walk for walk in walks if len(walk.levels) > depth]
    for agents, payloads in _take(chosen, depth, "actions"):
        for agent, payload in zip(agents, payloads, strict=True):
            agent.handed = payload["action"]
    for walk in chosen:
        for agent in walk.levels[depth].agents:
            try:
                agent.descend()
            except Exception as error:
                add_note(error, _place(agent, walk))
                raise
    _flush(chosen)


def _ascend(walks: Sequence[tuple[Walk, Any]], depth: int) -> None:
    _take_infos([walk for walk, _ in walks], depth + 1)
    for walk, state in walks:
        if len(walk.levels) > depth:
            for agent in walk.levels[depth].agents:
                try:
                    agent.ascend(state)
                except Exception as error:
                    add_note(error, _place(agent, walk))
                    raise
    _flush(walk for walk, _ in walks)


def _groups(n: int) -> list[range]:
    """Return which of `n` environments make up each group."""
    size = max(_LEAST_IN_GROUP, -(-n // _MOST_GROUPS))
    return [range(start, min(start + size, n)) for start in range(0, n, size)]


def _take_infos(walks: Sequence[Walk], depth: int) -> None:
    """Wait for what the agents of a level have reported, and leave it there for their parents."""
    chosen = [walk for walk in walks if len(walk.levels) > depth]
    for agents, payloads in _take(chosen, depth, "infos"):
        for agent, payload in zip(agents, payloads, strict=True):
            agent.reported = payload


def _take(
    walks: Sequence[Walk], depth: int, edges: str
) -> Iterator[tuple[list[Walker], list[dict[str, Any]]]]:
    """Wait for the messages of a level's edges, and yield them by broker, with the agents below the edges."""
    by_broker: dict[int, tuple[KafkaBroker, list[Walker], list[Edge]]] = {}
    for walk in walks:
        if walk.broker is not None:
            level = walk.levels[depth]
            _, agents, awaited = by_broker.setdefault(id(walk.broker), (walk.broker, [], []))
            agents += level.linked
            awaited += getattr(level, edges)
    for broker, agents, awaited in by_broker.values():
        yield agents, broker.take_payloads(awaited, time.monotonic() + broker.timeout_s)


def _flush(walks: Iterable[Walk]) -> None:
    """Send what agents have put on edges, so that it is on its way while other groups compute."""
    for broker in {id(walk.broker): walk.broker for walk in walks}.values():
        if broker is not None:
            broker.flush()


def _by_broker(walks: Sequence[Walk]) -> list[tuple[KafkaBroker, list[int]]]:
    found: dict[int, tuple[KafkaBroker, list[int]]] = {}
    for i, walk in enumerate(walks):
        if walk.broker is not None:
            found.setdefault(id(walk.broker), (walk.broker, []))[1].append(i)
    return list(found.values())


def _place(agent: Walker, walk: Walk) -> str:
    return f"in agent {agent.agent_id!r} of environment {walk.env_id!r}"
