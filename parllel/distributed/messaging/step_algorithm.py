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
no channels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from parllel.distributed.messaging.channel import Channel
from parllel.distributed.messaging.kafka_broker import KafkaBroker
from parllel.errors import add_note

# More groups hide more of the computing, and cost more calls; of few environments there is little to hide.
_MAX_GROUPS, _LEAST_IN_GROUP = 4, 16


class StepAgent(Protocol):
    """An agent, as the algorithm sees it."""

    agent_id: str
    handed: Any
    reported: Any
    action_channel: Channel | None
    info_channel: Channel | None

    @property
    def subordinates(self) -> Mapping[str, StepAgent]:
        """The agents right below."""

    def descend(self) -> None:
        """Do one agent's part of the way down."""

    def ascend(self, global_state: Any) -> dict[str, Any]:
        """Do one agent's part of the way up."""


@dataclass(frozen=True)
class Level:
    """The agents of one environment that are as far from it.

    linked: those of them that have channels from and to a parent, `actions` and `infos`; none in SYNC.
    """

    agents: tuple[StepAgent, ...]
    linked: tuple[StepAgent, ...] = ()
    actions: tuple[Channel, ...] = ()
    infos: tuple[Channel, ...] = ()


@dataclass(frozen=True)
class EnvStep:
    """The way of one environment's step; `broker` is None in SYNC."""

    env_id: str
    broker: KafkaBroker | None
    levels: tuple[Level, ...]


def plan_step(env_id: str, broker: KafkaBroker | None, roots: Sequence[StepAgent]) -> EnvStep:
    """Return the way through `roots` and all agents below them; for SYNC `broker` must be None."""
    if broker is None:
        return EnvStep(env_id, None, (Level(tuple(roots)),))
    levels, agents = [], tuple(roots)
    while agents:
        linked = tuple(agent for agent in agents if agent.action_channel and agent.info_channel)
        actions = tuple(agent.action_channel for agent in linked if agent.action_channel)
        infos = tuple(agent.info_channel for agent in linked if agent.info_channel)
        levels.append(Level(agents, linked, actions, infos))
        agents = tuple(below for agent in agents for below in agent.subordinates.values())
    return EnvStep(env_id, broker, tuple(levels))


ResultT = TypeVar("ResultT", covariant=True)


class SteppedEnv(Protocol[ResultT]):
    """An environment, as the algorithm sees it."""

    @property
    def timestep(self) -> int:
        """How many steps the episode has had."""

    @property
    def env_step(self) -> EnvStep:
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
    environments: Sequence[SteppedEnv[ResultT]], actions: Sequence[Any]
) -> list[ResultT]:
    """Step environments by their actions, and return their results, in the same order.

    Raises:
        MissingMessageError: if a message does not come within the time-out of its broker. All these
            environments must be reset after that, and after any other error from here on.
    """
    for env, of_one in zip(environments, actions, strict=True):
        # All are checked before the first begins, so that a wrong argument leaves all as they were.
        env.check_step(of_one)
    env_steps = [env.env_step for env in environments]
    for broker, chosen in _by_broker(env_steps):
        broker.begin_step(
            [env_steps[i].env_id for i in chosen], [environments[i].timestep for i in chosen]
        )
    # References are there at once: agents that step with few others are still in the processor's cache then.
    at_once = all(
        env_step.broker is not None and not env_step.broker.encoded for env_step in env_steps
    )
    n, size = len(env_steps), _LEAST_IN_GROUP if at_once else len(env_steps)
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
    environments: Sequence[SteppedEnv[ResultT]], actions: Sequence[Any]
) -> list[ResultT]:
    env_steps = [env.env_step for env in environments]
    for group in _groups(len(env_steps)):
        for i in group:
            environments[i].begin_step(actions[i])
        _flush([env_steps[i] for i in group])
    walk_through(env_steps, lambda i: environments[i].run_physics())
    _take_infos(env_steps, 0)
    return [env.finish_step() for env in environments]


def walk_through(env_steps: Sequence[EnvStep], run_physics: Callable[[int], Any]) -> None:
    """Let all agents pass on their actions, physics run, and all agents report, level by level.

    run_physics: lets the leaves of the i-th environment act, and returns its global state.
    """
    last = max(len(env_step.levels) for env_step in env_steps) - 1
    groups = _groups(len(env_steps))
    states: dict[int, Any] = {}
    for depth in range(last):
        for group in groups:
            _descend([env_steps[i] for i in group], depth)
    for group in groups:
        # In one go, so that the reports of a group are on their way while the others' leaves act.
        _descend([env_steps[i] for i in group], last)
        states.update((i, run_physics(i)) for i in group)
        _ascend([(env_steps[i], states[i]) for i in group], last)
    for depth in reversed(range(last)):
        for group in groups:
            _ascend([(env_steps[i], states[i]) for i in group], depth)


def _descend(env_steps: Sequence[EnvStep], depth: int) -> None:
    chosen = [env_step for env_step in env_steps if len(env_step.levels) > depth]
    for agents, payloads in _take(chosen, depth, "actions"):
        for agent, payload in zip(agents, payloads, strict=True):
            agent.handed = payload["action"]
    for env_step in chosen:
        for agent in env_step.levels[depth].agents:
            try:
                agent.descend()
            except Exception as error:
                add_note(error, _place(agent, env_step))
                raise
    _flush(chosen)


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
    """Return which of `n` environments make up each group."""
    size = max(_LEAST_IN_GROUP, -(-n // _MAX_GROUPS))
    return [range(start, min(start + size, n)) for start in range(0, n, size)]


def _take_infos(env_steps: Sequence[EnvStep], depth: int) -> None:
    """Wait for what the agents of a level have reported, and leave it there for their parents."""
    chosen = [env_step for env_step in env_steps if len(env_step.levels) > depth]
    for agents, payloads in _take(chosen, depth, "infos"):
        for agent, payload in zip(agents, payloads, strict=True):
            agent.reported = payload


def _take(
    env_steps: Sequence[EnvStep], depth: int, channels: str
) -> Iterator[tuple[list[StepAgent], list[dict[str, Any]]]]:
    """Wait for the messages of a level and yield them by broker, with the receiving agents."""
    by_broker: dict[int, tuple[KafkaBroker, list[StepAgent], list[Channel]]] = {}
    for env_step in env_steps:
        if env_step.broker is not None:
            level = env_step.levels[depth]
            _, agents, awaited = by_broker.setdefault(
                id(env_step.broker), (env_step.broker, [], [])
            )
            agents += level.linked
            awaited += getattr(level, channels)
    for broker, agents, awaited in by_broker.values():
        yield agents, broker.take_payloads(awaited, time.monotonic() + broker.timeout_s)


def _flush(env_steps: Iterable[EnvStep]) -> None:
    """Send what agents have put on channels, so that it is on its way while other groups compute."""
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
