"""The agents of one environment that a host runs.

    the parent's action              --->  decide        --->  the subordinates' actions, or a leaf's
    observation, subordinates' infos --->  compile_info  --->  the agent's info

Each agent acts as soon as its messages have arrived. The order among agents does not matter, because they
share nothing but messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from parllel.distributed.messaging.agent import Agent
from parllel.distributed.messaging.channel import Channel
from parllel.distributed.messaging.delivery import Delivery
from parllel.distributed.messaging.env_state import agent_state, check_agent, load_agent_state
from parllel.distributed.messaging.exchange import Exchange
from parllel.distributed.messaging.hierarchy import ENVIRONMENT, make_hierarchy
from parllel.distributed.messaging.kafka_broker import KafkaBroker
from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.distributed.messaging.lease import Lease
from parllel.distributed.messaging.namespace import Namespace
from parllel.distributed.messaging.topic import TopicManager
from parllel.distributed.messaging.transport import Transport
from parllel.errors import WrongStateError
from parllel.seeding import Seeds
from parllel.types import State

_NEVER = -1


class HostBroker(KafkaBroker):
    """The broker of a host's agents, which carries only actions and infos."""

    def _meet_hosts(self) -> None:
        return None  # the host meets the environment side instead

    def publish(self, topic: str, message: KafkaMessage) -> None:
        """Raise WrongStateError."""
        self._refuse("publish", topic)

    def subscribe(self, topic: str, *arguments: Any, **named: Any) -> Callable[[], None]:
        """Raise WrongStateError."""
        self._refuse("subscribe", topic)

    def _refuse(self, call: str, topic: str) -> NoReturn:
        raise WrongStateError(
            f"{call}: topic {topic!r}: agents on a host exchange actions and infos only; run agents that use "
            "broadcasts or custom topics on the environment side"
        )

    def open(self, env_id: str, lease: int, remote: frozenset[str]) -> Lease:
        """Take the environment's id, under the lease that it has on the environment side."""
        self.join(env_id)
        with self._exchange.lock:
            namespace = self._namespaces.by_id[env_id]
            namespace.lease.number, namespace.remote = lease, remote
            return namespace.lease

    def receive(self, timeout_s: float) -> int:
        """Deliver what has arrived, after waiting for it. Returns the number of own records back so far."""
        self._delivery.receive(timeout_s)
        return self._delivery.received_records

    def parts(self) -> tuple[Exchange, Delivery, Transport, dict[str, Namespace]]:
        """Return what a meeting works on."""
        return self._exchange, self._delivery, self._transport, self._namespaces.by_id


@dataclass
class _Part:
    """One agent, with its channels and the last step in which it decided and reported.

    Attributes:
        observations: from the environment.
        infos: from the subordinates.
        decisions: of a leaf, to the environment.
    """

    agent: Agent
    actions: Channel
    observations: Channel
    infos: list[tuple[Agent, Channel]]
    decisions: Channel | None
    decided: int = _NEVER
    reported: int = _NEVER

    def decide(self) -> None:
        self.agent.hand(self.actions.take_payload()["action"])
        self.agent.descend()
        if self.decisions is not None:
            self.decisions.put({"action": self.agent._last_action}, self.agent._timestep)

    def report(self) -> None:
        for subordinate, channel in self.infos:
            subordinate.reported = channel.take_payload()
        self.agent.ascend(self.observations.take_payload()["observation"])


class AgentFailedError(Exception):
    """An agent raised an exception, which is the cause. `agent` is its id."""

    def __init__(self, agent: str) -> None:
        super().__init__(agent)
        self.agent = agent


class ServedEnvironment:
    """Agents of one environment, connected to the rest of their hierarchy.

    Args:
        agents: all agents of the environment, as the factory made them.
        served: ids of the agents to run.
        lease: number of the environment's lease.

    Attributes:
        failed: True once an agent raised an exception, until the next reset.
    """

    def __init__(
        self,
        broker: HostBroker,
        env_id: str,
        lease: int,
        agents: Mapping[str, Agent],
        served: frozenset[str],
    ) -> None:
        self.env_id = env_id
        self.agents = {name: agent for name, agent in agents.items() if name in served}
        self.failed = False
        self.lease = broker.open(env_id, lease, frozenset({*agents, ENVIRONMENT} - served))
        self._parts = [self._part(broker, agents[name]) for name in agents if name in served]

    def _part(self, broker: HostBroker, agent: Agent) -> _Part:
        name, env_id = agent.agent_id, self.env_id
        agent.kafka_broker, agent.env_id = broker, env_id
        agent._setup_kafka_topics()
        # The environment side has observed the global state for it, and sends the observation instead.
        agent.observe = _observation  # type: ignore[method-assign,assignment]
        action, info = TopicManager.action_topic, TopicManager.info_topic
        assert agent.action_channel is not None
        broker.channel(action(ENVIRONMENT, name, env_id))  # for resets
        return _Part(
            agent,
            agent.action_channel,
            broker.channel(info(ENVIRONMENT, name, env_id)),
            [
                (sub, broker.channel(info(sub_id, name, env_id)))
                for sub_id, sub in agent.subordinates.items()
            ],
            None if agent.subordinates else broker.channel(action(name, ENVIRONMENT, env_id)),
        )

    def reset(self, payloads: Mapping[str, Mapping[str, Any]]) -> None:
        """Begin an episode. Raises AgentFailedError.

        payloads: what the environment sent to each agent.
        """
        self.failed = False
        for part in self._parts:
            part.decided = part.reported = _NEVER
            agent, payload = part.agent, payloads[part.agent.agent_id]
            if payload["reset"] is not None:
                agent.np_random = Seeds(int(payload["reset"])).generator(agent.agent_id)
            agent._forget()
            try:
                agent.reset()
            except Exception as error:
                raise self._failure(agent) from error
            agent._last_observation = payload["observation"]

    def advance(self) -> None:
        """Let each agent act whose messages have arrived. Raises AgentFailedError."""
        step = self.lease.step
        if step is None or self.failed:
            return
        if self.lease.fault is not None:
            raise self._failure(self._parts[0].agent) from self.lease.fault
        for part in self._parts:
            try:
                if part.decided != step and part.actions.ready():
                    part.decide()
                    part.decided = step
                if part.decided == step != part.reported and self._has_all(part):
                    part.report()
                    part.reported = step
            except Exception as error:
                raise self._failure(part.agent) from error

    def _has_all(self, part: _Part) -> bool:
        return part.observations.ready() and all(channel.ready() for _, channel in part.infos)

    def _failure(self, agent: Agent) -> AgentFailedError:
        self.failed = True
        return AgentFailedError(agent.agent_id)

    def state(self) -> State:
        """Return the states of the agents, by id. Raises NoStateError as `KafkaMultiAgentEnv.state`."""
        for agent in self.agents.values():
            check_agent(agent)
        return {name: agent_state(agent) for name, agent in self.agents.items()}

    def load_state(self, state: State) -> None:
        """Restore the states of those agents that `state` has."""
        for name, agent in self.agents.items():
            if name in state:
                load_agent_state(agent, state[name])


def _observation(observation: Any) -> Any:
    return observation


def check_hierarchy(env_id: str, agents: Mapping[str, Agent], parents: Mapping[str, str]) -> None:
    """Check that a host's agents form the hierarchy that their environment has.

    Raises:
        ValueError: if they do not. Names the agents that differ.
    """
    roots = [agent for agent, parent in parents.items() if parent == ENVIRONMENT]
    found: dict[str, str | None] = {name: ENVIRONMENT if name in roots else None for name in agents}
    for name, agent in agents.items():
        found |= dict.fromkeys(agent.subordinates, name)
    if found != parents:
        differ = sorted(dict(found.items() ^ parents.items()))
        raise ValueError(
            f"its agents {differ} are not those of environment {env_id!r}, or have other parents; use the "
            "same factory on both sides"
        )
    make_hierarchy(agents, roots)
