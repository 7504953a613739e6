"""One step of many environments: actions down, physics, infos up, level by level.

    hop         written by                read after the hop by
    down 0      the environments          all roots
    down 1      all roots                 their subordinates
    ...         ...                       ...           the leaves' actions go to physics, in process
    up d        all agents of level d     their parents
    up 0        all roots                 the environments

Environments are processed in a few groups: while the messages of one group are in transit, the agents of the
next compute. With slow messages a step therefore takes about as long as its hops, however many environments
there are. Within a group, agents are visited environment by environment.

Agents in SYNC call their subordinates directly, so their environment has one level, the roots, and no
channels.

A policy outside decides for trained agents. A step begins in the call before, which ends where they decide:

    reset, or the end of a step    actions down to the trained agents, whose policies then act
    step                           actions down from the trained agents, physics, infos up
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from parllel.distributed.messaging.channel import Channel
from parllel.distributed.messaging.kafka_broker import KafkaBroker
from parllel.errors import add_note

# More groups overlap more computation with messages but cost more calls; few environments gain little.
_MAX_GROUPS, _LEAST_IN_GROUP = 4, 16


class StepAgent(Protocol):
    """The interface of an agent that the step algorithm needs."""

    agent_id: str
    handed: Any
    _last_action: Any
    reported: Any
    action_channel: Channel | None
    info_channel: Channel | None

    @property
    def subordinates(self) -> Mapping[str, StepAgent]:
        """The agents directly below."""

    def descend(self) -> None:
        """Receive the parent's action and send actions to the subordinates."""

    def ascend(self, global_state: Any) -> dict[str, Any]:
        """Collect the subordinates' infos and report to the parent."""


@dataclass(frozen=True)
class Level:
    """The agents of one environment at the same distance from it.

    agents: the agents that this process runs.
    receivers: those among them that have a channel from a parent; `actions` are these channels.
    reporters: the agents of the level whose parents this process runs; `infos` are their channels.
        Both are empty in SYNC.
    """

    agents: tuple[StepAgent, ...]
    receivers: tuple[StepAgent, ...] = ()
    actions: tuple[Channel, ...] = ()
    reporters: tuple[StepAgent, ...] = ()
    infos: tuple[Channel, ...] = ()


@dataclass(frozen=True)
class EnvStep:
    """The levels that a step of one environment visits. `broker` is None in SYNC.

    above: what is visited on the way down to the trained agents, these included; empty if there are none.
    below: what is visited on the way down from the trained agents, or from the roots if there are none.
    deciders: the leaves that hosts run; `decisions` are their channels to the environment.
    """

    env_id: str
    broker: KafkaBroker | None
    levels: tuple[Level, ...]
    above: tuple[Level, ...]
    below: tuple[Level, ...]
    deciders: tuple[StepAgent, ...] = ()
    decisions: tuple[Channel, ...] = ()


def plan_step(
    env_id: str,
    broker: KafkaBroker | None,
    roots: Sequence[StepAgent],
    decisions: Mapping[str, Channel | None] = MappingProxyType({}),
    trained: Sequence[StepAgent] = (),
) -> EnvStep:
    """Plan a step of `roots` and all agents below them. `broker` must be None in SYNC.

    decisions: the agents that hosts run, with a leaf's channel to the environment.
    trained: agents for which a policy outside decides, none of them above another.
    """
    if broker is None:
        calls = (Level(tuple(roots)),)
        if not trained:
            return EnvStep(env_id, None, calls, (), calls)
        return EnvStep(env_id, None, calls, calls, (Level(tuple(trained)),))
    found, agents, deciders = [], tuple(roots), []
    parents: dict[str, str] = {}
    while agents:
        local = tuple(agent for agent in agents if agent.agent_id not in decisions)
        receivers = tuple(agent for agent in local if agent.action_channel)
        reporters = tuple(
            agent
            for agent in agents
            if agent.info_channel and parents.get(agent.agent_id) not in decisions
        )
        actions = tuple(agent.action_channel for agent in receivers if agent.action_channel)
        infos = tuple(agent.info_channel for agent in reporters if agent.info_channel)
        found.append(Level(local, receivers, actions, reporters, infos))
        deciders += [agent for agent in agents if decisions.get(agent.agent_id)]
        parents = {below: agent.agent_id for agent in agents for below in agent.subordinates}
        agents = tuple(below for agent in agents for below in agent.subordinates.values())
    channels = tuple(channel for agent in deciders if (channel := decisions[agent.agent_id]))
    levels = tuple(found)
    above, below = _split(levels, trained) if trained else ((), levels)
    return EnvStep(env_id, broker, levels, above, below, tuple(deciders), channels)


def _split(
    levels: Sequence[Level], trained: Sequence[StepAgent]
) -> tuple[tuple[Level, ...], tuple[Level, ...]]:
    """Split the way down into the part that ends at the trained agents and the part that begins there."""
    acting = {agent.agent_id for agent in trained}
    under = _names_below(trained)
    ways = [_part(level, {agent.agent_id for agent in level.agents} - under) for level in levels]
    above = tuple(way for way in ways if way.agents)
    # Trained agents are in both parts, but receive their parent's action in the first one only.
    below = tuple(_part(level, under, acting) for level in levels)
    return above, below


def _names_below(agents: Sequence[StepAgent]) -> set[str]:
    below = [sub for agent in agents for sub in agent.subordinates.values()]
    for agent in below:
        below += agent.subordinates.values()
    return {agent.agent_id for agent in below}


def _part(level: Level, receiving: Set[str], acting: Set[str] = frozenset()) -> Level:
    """Return those agents of a level that receive actions or act without."""
    chosen = [
        (agent, channel)
        for agent, channel in zip(level.receivers, level.actions, strict=True)
        if agent.agent_id in receiving
    ]
    return Level(
        tuple(agent for agent in level.agents if agent.agent_id in receiving | acting),
        tuple(agent for agent, _ in chosen),
        tuple(channel for _, channel in chosen),
    )


ResultT = TypeVar("ResultT", covariant=True)


class SteppedEnv(Protocol[ResultT]):
    """The interface of an environment that the step algorithm needs."""

    terminated: bool
    truncated: bool

    @property
    def timestep(self) -> int:
        """The number of steps in the episode so far."""

    @property
    def env_step(self) -> EnvStep:
        """The levels that a step visits."""

    def check_step(self, actions: Any) -> None:
        """Raise if the environment cannot step with these actions."""

    def begin_roots(self) -> None:
        """Send each root its action, where a policy acts for agents below."""

    def begin_step(self, actions: Any) -> None:
        """Send each root its action, or give each trained agent that of its policy."""

    @property
    def steps_per_action(self) -> int:
        """For how many steps the policies act at once."""

    def joined(self, before: Any, last: Any) -> ResultT:
        """Return the result of two steps in a row as that of one."""

    def abandon_step(self) -> None:
        """Require a reset after a failed step."""

    def run_physics(self) -> Any:
        """Apply the leaves' actions, and return the global state."""

    def finish_step(self) -> ResultT:
        """Collect the roots' infos, and return the result of the step."""


def step_environments(
    environments: Sequence[SteppedEnv[ResultT]], actions: Sequence[Any]
) -> list[ResultT]:
    """Step environments together, and return their results in the same order.

    Where policies act only in some steps, this takes all steps up to the next of these, or up to the
    episode's end.

    Raises:
        MissingMessageError: if a message does not arrive within its broker's time-out. After this
            or any other error in a step, all these environments must be reset.
    """
    for env, action in zip(environments, actions, strict=True):
        # All are checked before the first begins, so that a wrong argument changes none of them.
        env.check_step(action)
    try:
        results = _step_once(environments, actions)
        taken, going = 1, list(range(len(environments)))
        while going := [i for i in going if _goes_on(environments[i], taken)]:
            last = _step_once([environments[i] for i in going], [actions[i] for i in going])
            for i, result in zip(going, last, strict=True):
                results[i] = environments[i].joined(results[i], result)
            taken += 1
    except BaseException:
        # Including those that finished: their results are lost with this exception.
        for env in environments:
            env.abandon_step()
        raise
    return results


def _goes_on(env: SteppedEnv[Any], taken: int) -> bool:
    return taken < env.steps_per_action and not (env.terminated or env.truncated)


def _step_once(
    environments: Sequence[SteppedEnv[ResultT]], actions: Sequence[Any]
) -> list[ResultT]:
    env_steps = [env.env_step for env in environments]
    # Where policies act for agents below, the step has begun already.
    _begin_at_brokers([env for env in environments if not env.env_step.above])
    # References arrive at once, so there is no latency to hide. Small batches keep agents in the CPU cache.
    at_once = all(
        env_step.broker is not None and not env_step.broker.encoded for env_step in env_steps
    )
    n, size = len(env_steps), _LEAST_IN_GROUP if at_once else len(env_steps)
    return [
        result
        for start in range(0, n, size)
        for result in _step_together(
            environments[start : start + size], actions[start : start + size]
        )
    ]


def begin_steps(environments: Sequence[SteppedEnv[Any]]) -> None:
    """Begin the next step of environments with trained agents, up to where these agents decide.

    Raises:
        MissingMessageError: as `step_environments`. Then all these environments must be reset.
    """
    waiting = [env for env in environments if env.env_step.above]
    try:
        _begin_together(waiting)
    except BaseException:
        for env in waiting:
            env.abandon_step()
        raise


def _begin_together(environments: Sequence[SteppedEnv[Any]]) -> None:
    if not environments:
        return
    env_steps = [env.env_step for env in environments]
    groups = _groups(len(env_steps))
    _begin_at_brokers(environments)
    for group in groups:
        for i in group:
            environments[i].begin_roots()
        _flush([env_steps[i] for i in group])
    for depth in range(max(len(env_step.above) for env_step in env_steps)):
        for group in groups:
            _descend([(env_steps[i], env_steps[i].above) for i in group], depth)


def _begin_at_brokers(environments: Sequence[SteppedEnv[Any]]) -> None:
    # Once per broker rather than per environment: it takes the lock and flushes only once.
    for broker, chosen in _by_broker([env.env_step for env in environments]):
        broker.begin_step(
            [environments[i].env_step.env_id for i in chosen],
            [environments[i].timestep for i in chosen],
        )


def _step_together(
    environments: Sequence[SteppedEnv[ResultT]], actions: Sequence[Any]
) -> list[ResultT]:
    env_steps = [env.env_step for env in environments]
    for group in _groups(len(env_steps)):
        for i in group:
            environments[i].begin_step(actions[i])
        _flush([env_steps[i] for i in group])
    walk_through(env_steps, lambda i: environments[i].run_physics())
    _take_infos(env_steps, 0)
    # Before the results, which contain what the policies observe next.
    _begin_together([env for env in environments if env.env_step.above])
    return [env.finish_step() for env in environments]


def walk_through(env_steps: Sequence[EnvStep], run_physics: Callable[[int], Any]) -> None:
    """Pass actions down, run physics and pass infos up, level by level.

    run_physics: applies the leaves' actions of the i-th environment, and returns its global state.
    """
    last = max(len(env_step.levels) for env_step in env_steps) - 1
    groups = _groups(len(env_steps))
    states: dict[int, Any] = {}
    for depth in range(last):
        for group in groups:
            _descend([(env_steps[i], env_steps[i].below) for i in group], depth)
    for group in groups:
        # In one pass, so that the infos of a group are in transit while the other groups' leaves act.
        _descend([(env_steps[i], env_steps[i].below) for i in group], last)
        _take_decisions([env_steps[i] for i in group])
        states.update((i, run_physics(i)) for i in group)
        _ascend([(env_steps[i], states[i]) for i in group], last)
    for depth in reversed(range(last)):
        for group in groups:
            _ascend([(env_steps[i], states[i]) for i in group], depth)


def _descend(ways: Sequence[tuple[EnvStep, tuple[Level, ...]]], depth: int) -> None:
    """Pass actions down one level. ways: for each environment, the levels to visit on the way down."""
    chosen = [(env_step, levels[depth]) for env_step, levels in ways if len(levels) > depth]
    for agents, payloads in _take(
        (env_step, level.receivers, level.actions) for env_step, level in chosen
    ):
        for agent, payload in zip(agents, payloads, strict=True):
            agent.handed = payload["action"]
    for env_step, level in chosen:
        for agent in level.agents:
            try:
                agent.descend()
            except Exception as error:
                add_note(error, _place(agent, env_step))
                raise
    _flush(env_step for env_step, _ in chosen)


def _ascend(env_steps: Sequence[tuple[EnvStep, Any]], depth: int) -> None:
    _take_infos([env_step for env_step, _ in env_steps], depth + 1)
    for env_step, state in env_steps:
        if len(env_step.levels) > depth:
            for agent in env_step.levels[depth].agents:
                try:
                    agent.ascend(state)
                except Exception as error:
                    add_note(error, _place(agent, env_step))
                    raise
    _flush(env_step for env_step, _ in env_steps)


def _groups(n: int) -> list[range]:
    """Split `n` environments into groups."""
    size = max(_LEAST_IN_GROUP, -(-n // _MAX_GROUPS))
    return [range(start, min(start + size, n)) for start in range(0, n, size)]


def _take_infos(env_steps: Sequence[EnvStep], depth: int) -> None:
    """Await the infos of a level's agents, and keep them for the parents to take."""
    chosen = [env_step for env_step in env_steps if len(env_step.levels) > depth]
    for agents, payloads in _take(
        (env_step, env_step.levels[depth].reporters, env_step.levels[depth].infos)
        for env_step in chosen
    ):
        for agent, payload in zip(agents, payloads, strict=True):
            agent.reported = payload


def _take_decisions(env_steps: Sequence[EnvStep]) -> None:
    """Await the actions on the physics of the leaves that hosts run."""
    if any(env_step.deciders for env_step in env_steps):
        for agents, payloads in _take(
            (env_step, env_step.deciders, env_step.decisions) for env_step in env_steps
        ):
            for agent, payload in zip(agents, payloads, strict=True):
                agent._last_action = payload["action"]


def _take(
    awaited_by_env: Iterable[tuple[EnvStep, tuple[StepAgent, ...], tuple[Channel, ...]]],
) -> Iterator[tuple[list[StepAgent], list[dict[str, Any]]]]:
    """Await messages, and yield them by broker, with the agents that they concern.

    awaited_by_env: for each environment, agents and a channel for each.
    """
    by_broker: dict[int, tuple[KafkaBroker, list[StepAgent], list[Channel]]] = {}
    for env_step, concerned, channels in awaited_by_env:
        if env_step.broker is not None:
            _, agents, awaited = by_broker.setdefault(
                id(env_step.broker), (env_step.broker, [], [])
            )
            agents += concerned
            awaited += channels
    # One wait for a whole level. Its deadline begins with the wait, not with the step.
    for broker, agents, awaited in by_broker.values():
        yield agents, broker.take_payloads(awaited, time.monotonic() + broker.timeout_s)


def _flush(env_steps: Iterable[EnvStep]) -> None:
    """Send what agents have put on channels, so that it travels while other groups compute."""
    for broker in {id(env_step.broker): env_step.broker for env_step in env_steps}.values():
        if broker is not None:
            broker.flush()


def _by_broker(env_steps: Sequence[EnvStep]) -> list[tuple[KafkaBroker, list[int]]]:
    found: dict[int, tuple[KafkaBroker, list[int]]] = {}
    for i, env_step in enumerate(env_steps):
        if env_step.broker is not None:
            found.setdefault(id(env_step.broker), (env_step.broker, []))[1].append(i)
    return list(found.values())


def _place(agent: StepAgent, env_step: EnvStep) -> str:
    return f"in agent {agent.agent_id!r} of environment {env_step.env_id!r}"
