"""Agents of a hierarchy in another process than their environment's physics, or on another machine.

    environment side             topics of the run             AgentHost.serve
      each environment           --- announcement --->           creates its agents
                                 <--------- claim ----           of those that it runs
      reset                      --- seed, observation --->      resets them
      step                       --- actions, observations --->  decide, compile_info (served_environment.py)
                                 <--- actions, infos ----
      raises                     <------- problem ----           an agent raised an exception

One thread receives, runs the agents and sends. Another one sends a beat each second (meeting.py).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from parllel.distributed.messaging.agent import Agent
from parllel.distributed.messaging.channel import Channel
from parllel.distributed.messaging.errors import HostError, MissingMessageError
from parllel.distributed.messaging.hosts.meeting import ENVIRONMENT_SIDE, HOST, Meeting, Member
from parllel.distributed.messaging.hosts.served_environment import (
    AgentFailedError,
    HostBroker,
    ServedEnvironment,
    check_hierarchy,
)
from parllel.distributed.messaging.namespace import Namespace
from parllel.distributed.messaging.record_content import RecordHead, read_id, wire_id
from parllel.envs.states.layer_state import NoStateError
from parllel.types import Closeable, State

_LOGGER = logging.getLogger("parllel.distributed.messaging")
_SLICE_S = 0.2
_ACTION = "action"
_NEVER = -1


class _Announced(NamedTuple):
    """An environment that has agents with hosts, and the parent of each of its agents."""

    environment: str
    lease: int
    parents: dict[str, str]


class AgentHost(Closeable):
    """Runs some agents of a hierarchy, for all environments of a run.

    The environment side names the same agents in `hosted`, and computes their observations: the host needs
    neither its physics nor its global state. Rollouts equal those of one process, bit for bit.

    Args:
        agent_factory: the function that the environment side uses, too: it takes the id of an environment and
            returns new agents for it, keyed by id.
        agents: patterns of the ids of the agents to run, such as ["device_*"].
        bootstrap: "host:port" of the Kafka broker.
        run: name of the run.
        envs: patterns of the ids of the environments.
        name: name of this host in errors. Default: the machine's name and the process id.
        timeout_s: time in seconds that a call waits for the broker.
        wait_s: time in seconds that `serve` waits for an environment side: at the start, and after it was
            last heard of. `math.inf` waits forever.
        stay: wait for the next environment side after one has closed.
        states: states of agents returned by `state`, from which they start again.
        kafka: further arguments of `parllel.distributed.messaging.kafka.KafkaTransport`.

    Raises:
        ValueError: for an invalid argument.
        BrokerUnavailableError, BrokerRefusedError: as for KafkaBroker.
    """

    def __init__(
        self,
        agent_factory: Callable[[str], Mapping[str, Agent]],
        agents: Sequence[str],
        *,
        bootstrap: str,
        run: str,
        envs: Sequence[str] = ("*",),
        name: str | None = None,
        timeout_s: float = 10.0,
        wait_s: float = 60.0,
        stay: bool = False,
        states: Mapping[str, State] | None = None,
        **kafka: Any,
    ) -> None:
        for what, patterns in (("agents", agents), ("envs", envs)):
            if isinstance(patterns, str) or not patterns:
                raise ValueError(f"{what}: expected a list of patterns, got {patterns!r}")
        if math.isnan(wait_s) or wait_s <= 0:
            raise ValueError(f"wait_s: expected seconds above 0, got {wait_s}")
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._factory, self._agents, self._envs = agent_factory, list(agents), list(envs)
        self._run, self._wait_s, self._stay = run, wait_s, stay
        # States to start from; states of environments that have closed.
        self._states, self._last = dict(states or {}), dict[str, State]()
        self._served: dict[str, ServedEnvironment] = {}
        self._broker = HostBroker(
            "kafka",
            run=run,
            bootstrap=bootstrap,
            timeout_s=timeout_s,
            hosts=True,
            **kafka,
        )
        self._received = 0
        self._meeting = _HostMeeting(self.name, self._broker, run)
        try:
            self._meeting.start()
        except BaseException:
            self._broker.close()
            raise

    def serve(self, check: Callable[[], object] = lambda: None) -> None:
        """Run the agents until the environment side closes.

        check: function called several times a second. What it raises ends the loop.

        Raises:
            HostError: if a claim is refused, or there is no environment side for `wait_s`.
            BrokerUnavailableError: if the broker does not accept what the agents send.
        """
        since, meeting = time.monotonic(), self._meeting
        while True:
            check()
            received = self._broker.receive(_SLICE_S)
            self._follow(received)
            self._broker.flush()
            if meeting.refusal is not None:
                raise HostError(meeting.refusal, host=self.name)
            if meeting.left and not self._stay:
                return
            if meeting.environment is not None:
                since = meeting.environment.heard
            if time.monotonic() - since > self._wait_s:
                raise HostError(self._alone(), host=self.name)

    def _alone(self) -> str:
        gone = self._meeting.environment
        who = "the environment side" if gone is None else f"the {gone}"
        return f"run {self._run!r}: {who} was not heard of for {self._wait_s:g} s"

    def _follow(self, received: int) -> None:
        """Do what the records that arrived ask for.

        received: number of this process's own records that have come back.
        """
        meeting = self._meeting
        for announced in meeting.take_requests():
            if not isinstance(announced, str):
                self._claim(announced)
            elif announced in self._served or not announced:
                self._forget(announced)
        resets, touched = meeting.take_arrivals(self._served)
        if received != self._received:
            # Perhaps with messages between two agents that this host runs.
            self._received, touched = received, set(self._served)
        for env_id in touched | resets.keys():
            served = self._served.get(env_id)
            if served is None:
                continue
            try:
                if env_id in resets:
                    served.reset(resets[env_id])
                served.advance()
            except AgentFailedError as failure:
                cause = failure.__cause__
                _LOGGER.error(
                    "agent %r of environment %r failed", failure.agent, env_id, exc_info=cause
                )
                self._report(served, failure.agent, f"{type(cause).__name__}: {cause}")

    def _forget(self, env_id: str) -> None:
        """Drop an environment, or all for ""."""
        for name in [env_id] if env_id else list(self._served):
            served = self._served.pop(name)
            with contextlib.suppress(NoStateError):
                self._last[name] = served.state()
            self._broker.leave(name)

    def _claim(self, announced: _Announced) -> None:
        env_id, lease, parents = announced
        if not any(fnmatchcase(env_id, pattern) for pattern in self._envs):
            return
        served = self._served.get(env_id)
        try:
            if served is None or served.lease.number != lease:
                if served is not None:
                    self._forget(env_id)
                served = self._create(env_id, lease, parents)
        except Exception as error:
            _LOGGER.exception("environment %r: its agents cannot be served", env_id)
            text = f"{type(error).__name__}: {error}"
            self._meeting.send(
                "problem",
                environment=wire_id(env_id),
                lease=lease,
                epoch=0,
                step=None,
                agent=None,
                text=text,
            )
            raise
        names = [wire_id(name) for name in served.agents]
        self._meeting.send("claim", environment=wire_id(env_id), lease=lease, agents=names)

    def _create(self, env_id: str, lease: int, parents: Mapping[str, str]) -> ServedEnvironment:
        agents = self._factory(env_id)
        check_hierarchy(env_id, agents, parents)
        chosen = frozenset(
            name for name in agents if any(fnmatchcase(name, pattern) for pattern in self._agents)
        )
        for pattern in self._agents:
            if not any(fnmatchcase(name, pattern) for name in agents):
                raise ValueError(
                    f"agents: {pattern!r} matches no agent of environment {env_id!r}; its agents are "
                    f"{sorted(agents)[:8]}"
                )
        served = ServedEnvironment(self._broker, env_id, lease, agents, chosen)
        served.load_state(self._states.pop(env_id, {}))
        self._served[env_id] = served
        return served

    def _report(self, served: ServedEnvironment, agent: str, text: str) -> None:
        """Tell the environment side why an agent does not go on. It waits for the next reset."""
        lease = served.lease
        self._meeting.send(
            "problem",
            environment=wire_id(served.env_id),
            lease=lease.number,
            epoch=lease.epoch,
            step=lease.step,
            agent=wire_id(agent),
            text=text,
        )

    def state(self) -> State:
        """Return the states of the agents by environment and id, for `states`. Call between steps.

        Raises:
            NoStateError: if an agent that overrides `reset` has no `state`.
        """
        current = {name: served.state() for name, served in self._served.items()}
        return {**self._states, **self._last, **current}

    def close(self) -> None:
        """Leave the run. Idempotent."""
        self._meeting.close()
        self._broker.close()


class _HostMeeting(Meeting):
    """A host's view of the environment side and the other hosts.

    Attributes:
        environment: the environment side that this host follows; None before there is one.
        left: True if it has closed, and no other has followed.
        refusal: why the environment side refuses this host; None if it does not.
    """

    def __init__(self, name: str, broker: HostBroker, run: str) -> None:
        super().__init__(HOST, name, *broker.parts())
        self.environment: Member | None = None
        self.left = False
        self.refusal: str | None = None
        self._run, self._broker = run, broker
        # Environments that were announced, ids of those that have closed, and "" for all.
        self._requests: list[_Announced | str] = []
        self._resets: dict[str, dict[str, Any]] = {}
        self._touched: set[str] = set()
        # By environment: the sessions of the other hosts near this host's agents, by agent.
        self._near: dict[str, dict[str, bytes]] = {}
        self._handlers |= {
            "beat": self._on_beat,
            "announce": self._on_announce,
            "release": self._on_release,
            "refuse": self._on_refuse,
        }

    def take_requests(self) -> list[_Announced | str]:
        """Return the environments to claim, and the ids of those to forget, since the last call."""
        requests, self._requests = self._requests, []
        return requests

    def take_arrivals(
        self, served: Mapping[str, ServedEnvironment]
    ) -> tuple[dict[str, dict[str, Any]], set[str]]:
        """Return the resets, by environment and agent, and the environments with other messages."""
        # Those of an environment may come in several records.
        complete = {
            env_id: self._resets.pop(env_id)
            for env_id, one in served.items()
            if env_id in self._resets and self._resets[env_id].keys() >= one.agents.keys()
        }
        touched, self._touched = self._touched, set()
        return complete, touched

    def _on_beat(self, member: Member, body: dict[str, Any]) -> None:
        if member.role == ENVIRONMENT_SIDE:
            self._follows(member, body)

    def _follows(self, member: Member, body: dict[str, Any]) -> bool:
        """Check whether a member is the environment side to follow, which it becomes if there is none."""
        current = self.environment
        if current is member:
            return True
        if member.role != ENVIRONMENT_SIDE:
            return False
        if current is not None and not self.left:
            loses = current.loses_to(member)
            if loses is False:
                text = f"run {self._run!r} is in use by the {current}; choose another name"
                self.reply("taken", to=body["messages"], text=text)
            if not loses:
                return False
        self.environment, self.left = member, False
        member.contested = None
        self._exchange.session = str(body["messages"])
        self._requests = [""]
        self._resets.clear()
        self._touched.clear()
        self._near.clear()
        self.reply("beat")  # it may have announced its environments before this process followed it
        return True

    def _on_announce(self, member: Member, body: dict[str, Any]) -> None:
        if self._follows(member, body):
            self._requests += [
                _Announced(
                    read_id(each["environment"]),
                    int(each["lease"]),
                    {read_id(agent): read_id(parent) for agent, parent in each["parents"]},
                )
                for each in body["environments"]
            ]

    def _on_release(self, member: Member, body: dict[str, Any]) -> None:
        if member is self.environment:
            self._requests.append(read_id(body["environment"]))

    def _on_refuse(self, member: Member, body: dict[str, Any]) -> None:
        if member is self.environment and body["to"] == self._transport.session:
            self.refusal = str(body["text"])

    def _leave(self, member: Member, body: dict[str, Any]) -> None:
        self.members.pop(member.session, None)
        self.left = self.left or member is self.environment

    def _greet(self, member: Member) -> None:
        if member.role == ENVIRONMENT_SIDE:
            self.reply("beat")

    def _mismatch(self, member: Member, what: str) -> None:
        if member.role == ENVIRONMENT_SIDE:
            self.refusal = f"run {self._run!r}: the {member} {what}"

    def _serving(self, namespace: Namespace, agent: str) -> bytes | None:
        found = self._near.get(namespace.lease.environment, {}).get(agent)
        return found or (None if self.environment is None else self.environment.session)

    def _adopt(self, namespace: Namespace, sender: bytes, head: RecordHead) -> None:
        lease = namespace.lease
        if self.environment is None or head.lease != lease.number:
            return
        if sender == self.environment.session and head.step is None and head.epoch > lease.epoch:
            self._transport.reset(lease.key, lease.number, head.epoch)
            namespace.clear()
            lease.epoch = head.epoch
            self._near[lease.environment] = {}
            self._resets.pop(lease.environment, None)
            return
        begun = _NEVER if lease.step is None else lease.step
        if head.epoch == lease.epoch and head.step is not None and head.step > begun:
            # What is unsent belongs to the step before.
            self._exchange.seal()
            lease.step = head.step

    def _arrive(self, namespace: Namespace, channel: Channel, item: tuple[Any, ...]) -> None:
        env_id, (step, _, _, payload) = channel.lease.environment, item
        if step is None and channel.key.kind == _ACTION:
            # Kept apart: the channel would drop it once the first step begins.
            channel.received += 1
            channel.taken += 1
            self._resets.setdefault(env_id, {})[channel.key.recipient] = payload
            self._near[env_id] |= {read_id(agent): session for agent, session in payload["hosts"]}
        else:
            channel.arrive(item)
            self._touched.add(env_id)

    def explain(self, channel: Channel, error: MissingMessageError) -> MissingMessageError:
        """Return the error as it is: a host waits for no message."""
        return error
