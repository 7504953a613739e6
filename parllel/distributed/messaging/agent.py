"""One agent of a hierarchy.

    parent  --action-->  agent  --an action each-->  subordinates  ...  leaves  -->  physics
    parent  <---info---  agent  <-------info-------  subordinates  ...  leaves  <--  global state

`descend` is one agent's part of the way down, `ascend` that of the way up. In SYNC they call the
subordinates' own and wait, so one call does for all agents below. In ASYNC they only take and send
messages, and the step algorithm (step_algorithm.py) goes from level to level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from parllel.distributed.messaging.channel import Channel
from parllel.distributed.messaging.errors import MissingMessageError
from parllel.distributed.messaging.kafka_broker import KafkaBroker
from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.distributed.messaging.step_algorithm import plan_step, walk_through
from parllel.distributed.messaging.topic import TopicManager
from parllel.errors import WrongStateError
from parllel.types import State


class ExecutionMode(str, Enum):
    """How a parent reaches its subordinates.

    SYNC: it calls them and waits for what they return; no broker is needed.
    ASYNC: by messages alone, hop by hop. Both give the same rollouts.
    """

    SYNC = "sync"
    ASYNC = "async"


class SupportsSetEnvId(Protocol):
    """An environment, as an agent sees it."""

    def set_env_id(self, env_id: str) -> None:
        """Rename the environment with all its agents."""


# In place of an action or info that has not come; None is an action like any other.
_NOTHING: Any = object()


class Agent(ABC):
    """An agent that gets actions from its parent and information from its subordinates.

    A subclass says what it sees (`observe`), and mostly what it does with an action (`decide`) and what it
    reports (`compile_info`). If it keeps a state of its own, it overrides `reset`, `state` and `load_state`
    as well.

    Args:
        agent_id: any non-empty string but "environment"; unique in its environment.
        level: the agent's rank, for your own use; the order of steps follows from `subordinates` alone.
        observation_space, action_space: a root needs both where a gymnasium or PettingZoo face is used.
        kafka_broker, env_id: set by the environment that gets the agent.
        parent_id: found from `subordinates`; if given, it must agree.
        subordinates: agents by id; they get this one as their parent.
        execution_mode: SYNC: a parent calls its subordinates, without a broker. ASYNC: messages alone.

    Attributes:
        mailbox: for messages that are no actions or infos, as in
            `broker.subscribe(TopicManager.broadcast_topic("grid", env_id), agent.mailbox.append)`. `decide`
            and `compile_info` see what has come; it is emptied after the way up.
        np_random: a generator of its own, seeded by the environment's `reset(seed=...)`.
    """

    def __init__(
        self,
        agent_id: str,
        level: int = 1,
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
        kafka_broker: KafkaBroker | None = None,
        parent_id: str | None = None,
        subordinates: Mapping[str, Agent] | None = None,
        execution_mode: ExecutionMode = ExecutionMode.ASYNC,
        env_id: str = "default",
    ) -> None:
        if not isinstance(agent_id, str) or not agent_id:
            raise ValueError(f"agent_id: expected a non-empty string, got {agent_id!r}")
        self.agent_id = agent_id
        self.level = level
        self.observation_space = observation_space
        self.action_space = action_space
        self.kafka_broker = kafka_broker
        self.parent_id = parent_id
        self.subordinates = dict(subordinates or {})
        self.execution_mode = ExecutionMode(execution_mode)
        self.env_id = env_id
        self.mailbox: list[KafkaMessage] = []
        for subordinate in self.subordinates.values():
            if subordinate.parent_id is None:
                subordinate.parent_id = agent_id

        self._timestep = 0.0
        self._compiled_info: dict[str, Any] = {}
        self._last_observation: Any = None
        self._last_action: Any = None
        self._np_random: np.random.Generator | None = None
        # The environment that has this agent, None if it is on its own.
        self._environment: SupportsSetEnvId | None = None
        # The parent's action, and what this agent reported, until they are taken: in SYNC left there by the
        # call, in ASYNC by the step algorithm, when their messages have come.
        self.handed: Any = _NOTHING
        self.reported: Any = _NOTHING
        # In ASYNC the channels of this agent: `put` without a look at names.
        self._connected = False
        self.action_channel: Channel | None = None
        self.info_channel: Channel | None = None
        self._channels_down: dict[str, Channel] = {}

    @abstractmethod
    def observe(self, global_state: Any) -> Any:
        """Return what this agent sees of the global state; for a root, of its observation space.

        Called at reset and once per step, after physics and before `compile_info`.
        """

    def decide(self, observation: Any, action: Any) -> Any:
        """Return what this agent does about its parent's action.

        observation: what `observe` returned last. action: the parent's; for a root, the policy's.

        With subordinates: a dict with an action for each, by id. By default `action` must be such a dict.
        Without: what `KafkaMultiAgentEnv.apply_actions` gets; `action` by default.
        """
        if self.subordinates and not isinstance(action, Mapping):
            raise TypeError(
                f"agent {self.agent_id!r}: expected a dict with an action for each of "
                f"{sorted(self.subordinates)}, got {action!r}; or override decide"
            )
        return action

    def compile_info(self, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Return what this agent reports to its parent; by default, the sum of its subordinates' rewards.

        infos: what each subordinate reported in this step, by id. `_last_observation` is of this step
        already. Of a root's info, "reward" is its reward, and "observation", if there, what the policy sees
        next.
        """
        return {"reward": sum(info.get("reward", 0.0) for info in infos.values())}

    def reset(self) -> None:
        """Forget the episode; a subclass with a state of its own overrides it, and `state` with it."""
        self._forget()

    def _forget(self) -> None:
        self._timestep = 0.0
        self._compiled_info = {}
        self._last_observation = None
        self._last_action = None
        self.handed = self.reported = _NOTHING
        self.mailbox.clear()

    def set_env_id(self, env_id: str) -> None:
        """Rename this agent's environment with all its agents; nothing of the old id stays behind.

        An agent on its own takes those below it along.
        """
        if self._environment is not None:
            self._environment.set_env_id(env_id)
            return
        if env_id != self.env_id and self._connected and self.kafka_broker is not None:
            self.kafka_broker.leave(self.env_id)
        below = [self]
        for agent in below:
            agent.env_id, agent._connected = env_id, False
            below += agent.subordinates.values()

    def step(self, global_state: Any) -> dict[str, Any]:
        """Step this agent and all below it, without physics in between, and return what it reports.

        For an agent that is driven without an environment; `KafkaMultiAgentEnv` does not call it.
        In ASYNC the action must have been published to it, and its own report is published too; in SYNC
        the action is what `hand` was given. Each step needs `KafkaBroker.begin_step` in ASYNC.
        """
        sync = self.execution_mode is ExecutionMode.SYNC
        if not sync and self.kafka_broker is None:
            raise WrongStateError(
                f"agent {self.agent_id!r}: is in ASYNC and has no kafka_broker; give it one, or put it into "
                "ExecutionMode.SYNC"
            )
        below: list[Agent] = [self]
        for agent in below:
            agent._last_observation = agent.observe(global_state)
            if not agent._connected:
                agent._setup_kafka_topics()
            below += agent.subordinates.values()
        env_step = plan_step(self.env_id, None if sync else self.kafka_broker, [self])
        walk_through([env_step], lambda _: global_state)
        return self._compiled_info

    def state(self) -> State:
        """Return what a subclass keeps beside what every agent has, as arrays and JSON values."""
        return {}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""

    @property
    def np_random(self) -> np.random.Generator:
        """The agent's own generator; from the operating system's entropy before the first seed."""
        if self._np_random is None:
            self._np_random = np.random.default_rng()
        return self._np_random

    @np_random.setter
    def np_random(self, generator: np.random.Generator) -> None:
        self._np_random = generator

    def descend(self) -> None:
        """Take the parent's action and pass on what `decide` makes of it: the way down."""
        action = self._receive_action_from_parent()
        self._last_action = decided = self.decide(self._last_observation, action)
        if self.subordinates:
            self._send_actions_to_subordinates(decided)

    def ascend(self, global_state: Any) -> dict[str, Any]:
        """Observe, gather the subordinates' reports, and pass on and return this agent's own: the way up."""
        infos = self._receive_infos_from_subordinates(global_state) if self.subordinates else {}
        self._last_observation = self.observe(global_state)
        self._compiled_info = compiled_info = self.compile_info(infos)
        self._send_info_to_parent(compiled_info)
        self._timestep += 1.0
        self.mailbox.clear()
        return compiled_info

    def hand(self, action: Any) -> None:
        """Leave the parent's action for `descend`."""
        self.handed = action

    def take_report(self) -> dict[str, Any]:
        """Return what this agent reported in this step, once; for its parent.

        Raises:
            MissingMessageError: if it left nothing.
        """
        report, self.reported = self.reported, _NOTHING
        if report is _NOTHING:
            # `ascend` has counted the step already.
            raise self._missing("info", self.agent_id, self.parent_id, int(self._timestep) - 1)
        return report  # type: ignore[no-any-return]

    def _missing(
        self, kind: str, sender: str | None, recipient: str | None, step: int
    ) -> MissingMessageError:
        return MissingMessageError(
            f"environment {self.env_id!r}, {kind} {sender!r} -> {recipient!r}, step {step}: expected "
            "a message, which was not sent",
            environment=self.env_id,
            step=step,
        )

    def _receive_action_from_parent(self) -> Any:
        """Return the parent's action of this step.

        Raises:
            MissingMessageError: if there is none.
        """
        action, self.handed = self.handed, _NOTHING
        if action is not _NOTHING:
            return action
        if self.parent_id is None:
            return None
        raise self._missing("action", self.parent_id, self.agent_id, int(self._timestep))

    def _send_actions_to_subordinates(self, actions: Mapping[str, Any]) -> None:
        """Hand each subordinate its action; in SYNC, it passes on its own before this returns."""
        if not isinstance(actions, Mapping) or actions.keys() != self.subordinates.keys():
            raise self._wrong_decision(actions)
        if self._channels_down:
            for name, action in actions.items():
                self._channels_down[name].put({"action": action}, self._timestep)
            return
        for name, subordinate in self.subordinates.items():
            subordinate.hand(actions[name])
            subordinate.descend()

    def _wrong_decision(self, actions: Any) -> Exception:
        if isinstance(actions, Mapping) and actions.keys() < self.subordinates.keys():
            omitted = next(name for name in self.subordinates if name not in actions)
            return MissingMessageError(
                f"environment {self.env_id!r}, action {self.agent_id!r} -> {omitted!r}, step "
                f"{int(self._timestep)}: decide: expected an action for each of "
                f"{list(self.subordinates)}, got some for {list(actions)}",
                environment=self.env_id,
                step=int(self._timestep),
            )
        return ValueError(
            f"agent {self.agent_id!r}: decide: expected a dict with an action for each of "
            f"{sorted(self.subordinates)}, got {actions!r}"
        )

    def _receive_infos_from_subordinates(self, global_state: Any) -> dict[str, dict[str, Any]]:
        """Return what each subordinate reports of this step, by id; in SYNC, it is asked for it now."""
        infos = {}
        for name, subordinate in self.subordinates.items():
            if not self._channels_down:
                subordinate.ascend(global_state)
            infos[name] = subordinate.take_report()
        return infos

    def _send_info_to_parent(self, compiled_info: dict[str, Any]) -> None:
        """Publish this agent's report; in SYNC, keep it for the parent, who is waiting for it."""
        if self.info_channel is not None:
            self.info_channel.put(compiled_info, self._timestep)
        else:
            self.reported = compiled_info

    def _setup_kafka_topics(self) -> None:
        """Make the channels to the parent and the subordinates; without a broker, forget them."""
        broker, name, env_id = self.kafka_broker, self.agent_id, self.env_id
        self.action_channel = self.info_channel = None
        self._channels_down = {}
        self._connected = True
        if broker is None or self.execution_mode is ExecutionMode.SYNC:
            return
        action, info = TopicManager.action_topic, TopicManager.info_topic
        if self.parent_id is not None:
            self.action_channel = broker.channel(action(self.parent_id, name, env_id), env_id)
            self.info_channel = broker.channel(info(name, self.parent_id, env_id), env_id)
        for sub in self.subordinates:
            self._channels_down[sub] = broker.channel(action(name, sub, env_id), env_id)
