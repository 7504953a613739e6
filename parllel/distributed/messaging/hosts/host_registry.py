"""The environment side of a run: which host runs which agents of which environments.

A host claims the agents that it serves, in answer to the announcement of an environment. A claim holds until
the host leaves, or until another host claims the agent and the first is not heard of any more. A host that
comes back after that is refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parllel.distributed.messaging.channel import Channel
from parllel.distributed.messaging.delivery import Delivery
from parllel.distributed.messaging.errors import HostError, MissingMessageError
from parllel.distributed.messaging.exchange import Exchange
from parllel.distributed.messaging.hosts.meeting import (
    BEAT_S,
    ENVIRONMENT_SIDE,
    HOST,
    Meeting,
    Member,
)
from parllel.distributed.messaging.namespace import Namespace
from parllel.distributed.messaging.record_content import read_id, wire_id
from parllel.distributed.messaging.transport import Transport


@dataclass
class _Hosted:
    """An environment with agents that hosts run.

    Attributes:
        parents: the parent of each agent of the hierarchy.
        agents: ids of the agents that hosts run.
        holders: the session of the host of each agent that is claimed.
        problem: why a host cannot serve it; None if it can.
    """

    lease: int
    parents: Mapping[str, str]
    agents: frozenset[str]
    holders: dict[str, bytes] = field(default_factory=dict)
    problem: HostError | None = None


class HostRegistry(Meeting):
    """Checks the claims of hosts, and names the host of an overdue message.

    Args:
        timeout_s: how long to wait for hosts, and after how much silence a host counts as gone.
    """

    def __init__(
        self,
        exchange: Exchange,
        delivery: Delivery,
        transport: Transport,
        namespaces: dict[str, Namespace],
        timeout_s: float,
    ) -> None:
        super().__init__(ENVIRONMENT_SIDE, "", exchange, delivery, transport, namespaces)
        self._timeout_s = timeout_s
        self._hosted: dict[str, _Hosted] = {}
        self._established = False
        self._taken: str | None = None
        self._handlers |= {
            "beat": self._on_beat,
            "claim": self._on_claim,
            "problem": self._on_problem,
            "taken": self._on_taken,
        }

    def open(
        self, env_id: str, lease: int, parents: Mapping[str, str], agents: frozenset[str]
    ) -> None:
        """Register an environment, before its channels are created."""
        with self._exchange.lock:
            self._hosted[env_id] = _Hosted(lease, parents, agents)
            self._namespaces[env_id].remote = agents

    def await_hosts(self, env_id: str) -> None:
        """Return once each agent of an environment that needs a host has one.

        Raises:
            HostError: if one has none within the time-out, or a claim is wrong, or another process is the
                environment side of the run. Names environment, agent and host.
        """
        hosted = self._hosted[env_id]
        deadline = time.monotonic() + self._timeout_s

        def ready() -> bool:
            if self._taken is not None:
                raise HostError(self._taken, environment=env_id)
            if hosted.problem is not None:
                problem, hosted.problem = hosted.problem, None
                raise problem
            return not any(self._is_unserved(hosted, agent) for agent in hosted.agents)

        while not ready():
            if time.monotonic() > deadline:
                with self._exchange.lock:
                    raise self._nobody(env_id, hosted)
            # Again with each turn: a host that has just started may have missed it.
            self.send("announce", environments=[self._announcement(env_id)])
            self._delivery.wait_until(ready, [], min(deadline, time.monotonic() + BEAT_S))
        self._established = True

    def holders_near(self, env_id: str, agent: str) -> list[tuple[str | bytes, bytes]]:
        """Return the sessions of the hosts of an agent's parent and subordinates, as (agent, session)."""
        hosted = self._hosted[env_id]
        parents = hosted.parents
        return [
            (wire_id(other), session)
            for other, session in hosted.holders.items()
            if parents[other] == agent or parents[agent] == other
        ]

    def release(self, env_id: str) -> None:
        """Tell the hosts that an environment has closed."""
        with self._exchange.lock:
            hosted = self._hosted.pop(env_id, None)
        if hosted is not None:
            self.send("release", environment=wire_id(env_id), lease=hosted.lease)

    def _nobody(self, env_id: str, hosted: _Hosted) -> HostError:
        agent = min(agent for agent in hosted.agents if self._is_unserved(hosted, agent))
        holder = self.members.get(hosted.holders.get(agent, b""))
        where = f"environment {env_id!r}, agent {agent!r}"
        if holder is not None:
            return HostError(
                f"{where}: {holder} {_silence(holder)}; start it again, then reset",
                environment=env_id,
                agent=agent,
                host=holder.name,
            )
        hosts = [str(member) for member in self.members.values() if member.role == HOST]
        known = f"the hosts of this run are {', '.join(hosts)}" if hosts else "the run has no hosts"
        if forged := self._transport.statistics().get("forged"):
            known += f", and {forged} records were not signed with the run's key"
        return HostError(
            f"{where}: no host serves it after {self._timeout_s:g} s; {known}; start one with `parllel "
            f"messaging host --run {self._exchange.run} --agents {agent!r}`",
            environment=env_id,
            agent=agent,
        )

    def _is_unserved(self, hosted: _Hosted, agent: str) -> bool:
        host = self.members.get(hosted.holders.get(agent, b""))
        return host is None or host.is_gone(self._timeout_s)

    def _announcement(self, env_id: str) -> dict[str, Any]:
        hosted = self._hosted[env_id]
        return {
            "environment": wire_id(env_id),
            "lease": hosted.lease,
            "parents": [[wire_id(agent), wire_id(of)] for agent, of in hosted.parents.items()],
        }

    def _about(self) -> dict[str, Any]:
        return {"established": self._established, "messages": self._exchange.session}

    def _idle(self) -> None:
        # While the main thread trains, claims and beats are still heard.
        self._delivery.receive(0.0)

    def _serving(self, namespace: Namespace, agent: str) -> bytes | None:
        hosted = self._hosted.get(namespace.lease.environment)
        return None if hosted is None else hosted.holders.get(agent)

    def _greet(self, member: Member) -> None:
        if member.role == HOST and self._hosted:
            # One record each, as many environments would exceed a record's limit.
            for env_id in self._hosted:
                self.reply("announce", environments=[self._announcement(env_id)])

    def _mismatch(self, member: Member, what: str) -> None:
        if member.role == HOST:
            self.reply(
                "refuse", to=member.session, text=f"run {self._exchange.run!r}: {member} {what}"
            )

    def _on_beat(self, member: Member, body: dict[str, Any]) -> None:
        if member.role == ENVIRONMENT_SIDE and body["established"] and not self._established:
            self._taken = (
                f"run {self._exchange.run!r} is in use by the {member}; choose another name"
            )
        if member.role == HOST and member.contested is not None:
            self._greet(member)  # it claims again

    def _on_taken(self, member: Member, body: dict[str, Any]) -> None:
        if body["to"] == self._exchange.session and not self._established:
            self._taken = str(body["text"])

    def _on_claim(self, member: Member, body: dict[str, Any]) -> None:
        env_id = read_id(body["environment"])
        hosted = self._hosted.get(env_id)
        if hosted is None or body["lease"] != hosted.lease:
            return
        agents = [read_id(agent) for agent in body["agents"]]
        for agent in agents:
            where = f"environment {env_id!r}, agent {agent!r}"
            if agent not in hosted.agents:
                what = (
                    "runs on the environment side" if agent in hosted.parents else "does not exist"
                )
                text = (
                    f"{where} {what}, but {member} serves it; narrow its agents, or add to `hosted`"
                )
                self._refuse(member, hosted, env_id, agent, text)
                return
            holder = self.members.get(hosted.holders.get(agent, b""))
            if holder is None or holder is member:
                continue
            loses = holder.loses_to(member)
            if loses is None:
                return  # it claims again with its next beat
            if not loses:
                text = f"{where} is served by {holder}; {member} cannot serve it too"
                self._refuse(member, hosted, env_id, agent, text)
                return
            self._drop(holder, f"was replaced by {member}")
        member.contested = None
        hosted.holders |= dict.fromkeys(agents, member.session)

    def _refuse(self, member: Member, hosted: _Hosted, env_id: str, agent: str, text: str) -> None:
        self.reply("refuse", to=member.session, text=text)
        # An environment that waits for its hosts fails with the same sentence, unless all is well without.
        if self._is_unserved(hosted, agent):
            hosted.problem = HostError(text, environment=env_id, agent=agent, host=member.name)

    def _on_problem(self, member: Member, body: dict[str, Any]) -> None:
        env_id = read_id(body["environment"])
        hosted, namespace = self._hosted.get(env_id), self._namespaces.get(env_id)
        if hosted is None or namespace is None or body["lease"] != hosted.lease:
            return
        lease = namespace.lease
        agent = None if body["agent"] is None else read_id(body["agent"])
        where = f"environment {env_id!r}" + ("" if agent is None else f", agent {agent!r}")
        if agent is None:
            hosted.problem = HostError(
                f"{where}: {member} cannot serve it: {body['text']}",
                environment=env_id,
                host=member.name,
            )
        elif body["epoch"] == lease.epoch and hosted.holders.get(agent) == member.session:
            lease.fault = lease.fault or HostError(
                f"{where}, step {body['step']}: failed on {member}: {body['text']}",
                environment=env_id,
                step=lease.step,
                agent=agent,
                host=member.name,
            )

    def _leave(self, member: Member, body: dict[str, Any]) -> None:
        self._drop(member, "has left")
        self.members.pop(member.session, None)

    def _drop(self, member: Member, why: str) -> None:
        """Take all agents from a host. Steps under way, and those until a reset, fail."""
        for env_id, hosted in self._hosted.items():
            held = [name for name, session in hosted.holders.items() if session == member.session]
            for name in held:
                del hosted.holders[name]
            namespace = self._namespaces.get(env_id)
            if held and namespace is not None and namespace.lease.fault is None:
                lease = namespace.lease
                step = "" if lease.step is None else f", step {lease.step}"
                lease.fault = HostError(
                    f"environment {env_id!r}{step}, agent {held[0]!r}: {member} {why}; reset the environment",
                    environment=env_id,
                    step=lease.step,
                    agent=held[0],
                    host=member.name,
                )

    def explain(self, channel: Channel, error: MissingMessageError) -> MissingMessageError:
        """Name the host of the sender, and hosts of the environment that are silent."""
        with self._exchange.lock:
            hosted = self._hosted.get(channel.lease.environment)
            agent = channel.key.sender
            if hosted is None:
                return error
            host = self.members.get(hosted.holders.get(agent, b""))
            others = {self.members.get(session) for session in hosted.holders.values()} - {
                host,
                None,
            }
            parts = (
                [] if host is None else [f"agent {agent!r} runs on {host}, which {_silence(host)}"]
            )
            parts += sorted(
                f"{other} {_silence(other)}"
                for other in others
                if other is not None and other.is_gone(3 * BEAT_S)
            )
        return MissingMessageError(
            "; ".join([str(error), *parts]),
            environment=error.environment,
            step=error.step,
            agent=None if host is None else agent,
            host=None if host is None else host.name,
        )


def _silence(member: Member) -> str:
    if member.is_gone(float("inf")):
        return "has ended"
    return f"was last heard of {time.monotonic() - member.heard:.1f} s ago"
