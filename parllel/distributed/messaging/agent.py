"""One agent of a hierarchy.

    parent  --action-->  agent  --an action each-->  subordinates  ...  leaves  -->  physics
    parent  <---info---  agent  <-------info-------  subordinates  ...  leaves  <--  global state

`descend` is one agent's part of the way down, `ascend` its part of the way up. In SYNC they call the
subordinates' methods directly, so one call covers all agents below. In ASYNC they only receive and send
messages, and the step algorithm (step_algorithm.py) visits the levels one by one.

For a trained agent, a policy decides between two calls of `descend`. The first one receives the parent's
action and makes the policy's observation of it. The second one receives the policy's action.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
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
    """How a parent communicates with its subordinates. Both modes give the same rollouts.

    SYNC: by method calls, without a broker.
    ASYNC: by messages, hop by hop.
    """

    SYNC = "sync"
    ASYNC = "async"


class SupportsSetEnvId(Protocol):
    """The interface of an environment that an agent needs."""

    def set_env_id(self, env_id: str) -> None:
        """Rename the environment with all its agents."""


# Marks an action or info that has not arrived; None is a valid action.
_NOTHING: Any = object()


class Agent(ABC):
    """An agent that receives actions from its parent and infos from its subordinates.

    Subclasses implement `observe`, and usually override `decide` and `compile_info`. A subclass
    that keeps its own state also overrides `reset`, `state` and `load_state`.

    Args:
        agent_id: any non-empty string except "environment". It must be unique within the
            environment.
        level: the agent's rank, for your own use; only `subordinates` determines the order of steps.
        observation_space, action_space: required for roots used through Gymnasium or PettingZoo.
        kafka_broker, env_id: set by the environment that the agent is passed to.
        parent_id: derived from `subordinates`. If given, it must match.
        subordinates: agents keyed by id. This agent becomes their parent.
        execution_mode: in SYNC, parents call their subordinates without a broker; in ASYNC, agents
            exchange messages only.
        protocol: what `decide` does with the agent's action: `broadcast`, `set_points` or `split`, or any
            function of the action and the subordinates' ids that returns an action for each of them.
        decide_every: number of steps from one decision to the next. In the steps between, the agent
            repeats its last one. If a policy acts for it, so does the policy: see KafkaMultiAgentEnv.

    Raises:
        ValueError: if `agent_id` is empty, `decide_every` is not at least 1, or `protocol` would have no
            effect because there are no subordinates or the class overrides `decide`.
        TypeError: if `protocol` is not a function.

    Attributes:
        mailbox: for messages other than actions and infos, as in
            `broker.subscribe(TopicManager.broadcast_topic("grid", env_id), agent.mailbox.append)`. Readable
            in `decide` and `compile_info`, and emptied after each step.
        np_random: the agent's own generator, seeded by the environment's `reset(seed=...)`.
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
        *,
        protocol: Callable[[Any, Sequence[str]], Mapping[str, Any]] | None = None,
        decide_every: int = 1,
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
        self.protocol = protocol
        self.decide_every = decide_every
        self._check_decisions()
        self.mailbox: list[KafkaMessage] = []
        for subordinate in self.subordinates.values():
            if subordinate.parent_id is None:
                subordinate.parent_id = agent_id

        self._timestep = 0.0
        self._compiled_info: dict[str, Any] = {}
        self._last_observation: Any = None
        self._last_action: Any = None
        self._np_random: np.random.Generator | None = None
        # The environment that owns this agent; None for a standalone agent.
        self._environment: SupportsSetEnvId | None = None
        # The parent's action and this agent's info until they are consumed. Written in SYNC by the calls, in
        # ASYNC by the step algorithm once their messages have arrived.
        self.handed: Any = _NOTHING
        self.reported: Any = _NOTHING
        # Set by the environment. `policy_input` is what the policy of a trained agent observes, from the
        # first call of `descend` in a step to the second.
        self.trained = False
        self.policy_input: Any = _NOTHING
        # Channels of this agent in ASYNC, which save the look-up of topic names in every step.
        self._connected = False
        self.action_channel: Channel | None = None
        self.info_channel: Channel | None = None
        self._channels_down: dict[str, Channel] = {}

    def _check_decisions(self) -> None:
        number, agent = self.decide_every, f"agent {self.agent_id!r}"
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(
                f"{agent}: decide_every: expected an int of at least 1, got {number!r}"
            )
        if self.protocol is not None and not callable(self.protocol):
            raise TypeError(
                f"{agent}: protocol: expected a function such as `broadcast`, got {self.protocol!r}"
            )
        if self.protocol is not None and not self.subordinates:
            raise ValueError(f"{agent}: protocol: expected subordinates to direct, got none")
        if self.protocol is not None and type(self).decide is not Agent.decide:
            raise ValueError(
                f"{agent}: protocol: expected a class that does not override decide, which calls it, got "
                f"{type(self).__name__}"
            )

    @abstractmethod
    def observe(self, global_state: Any) -> Any:
        """Return this agent's observation of the global state.

        Called at reset and once per step, after physics and before `compile_info`. The observation
        of a root must lie in its observation space.
        """

    def decide(self, observation: Any, action: Any) -> Any:
        """Return this agent's response to its parent's action.

        By default, what the agent's protocol makes of the action, or without one the action itself.

        An agent with subordinates returns a dict with an action for each of them, keyed by id. The
        result of a leaf is passed to `KafkaMultiAgentEnv.apply_actions`.

        observation: the last result of `observe`.
        action: the parent's action. A root or trained agent receives the action of its policy.

        If agents are trained, a root that is not one of them receives None. With `decide_every`, this is
        called in the first step of an episode and every `decide_every` steps after it.
        """
        if self.protocol is not None:
            return self.protocol(action, tuple(self.subordinates))
        if self.subordinates and not isinstance(action, Mapping):
            raise TypeError(
                f"agent {self.agent_id!r}: expected a dict with an action for each of "
                f"{sorted(self.subordinates)}, got {action!r}; or override `decide`"
            )
        return action

    def policy_observation(self, observation: Any, action: Any) -> Any:
        """Return what the policy of a trained agent observes, an element of `observation_space`.

        By default, "observation" of the agent's last info if present, else `observation`. Called once
        per step for agents in `trained` of the environment. `decide` then gets the policy's action.

        observation: the last result of `observe`.
        action: the parent's action in this step, to which the policy responds. None for a root.
        """
        return self._compiled_info.get("observation", observation)

    def compile_info(self, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the info for this agent's parent. By default, the sum of the subordinates' rewards.

        `_last_observation` already holds this step's observation. In the info of a root or trained
        agent, "reward" is its reward. "observation", if present, is the next input of the policy.

        infos: the subordinates' infos for this step, keyed by id.
        """
        return {"reward": sum(info.get("reward", 0.0) for info in infos.values())}

    def reset(self) -> None:
        """Start a new episode.

        Agents that keep their own state override this, together with `state` and `load_state`.
        """
        self._forget()

    def _forget(self) -> None:
        self._timestep = 0.0
        self._compiled_info = {}
        self._last_observation = None
        self._last_action = None
        self.handed = self.reported = self.policy_input = _NOTHING
        self.mailbox.clear()

    def set_env_id(self, env_id: str) -> None:
        """Rename this agent's environment with all its agents. The old id is released.

        A standalone agent renames itself and the agents below it.
        """
        if self._environment is not None:
            self._environment.set_env_id(env_id)
            return
        # A standalone agent has joined nothing, but its channels created the old id's namespace.
        if env_id != self.env_id and self._connected and self.kafka_broker is not None:
            self.kafka_broker.leave(self.env_id)
        below = [self]
        for agent in below:
            agent.env_id, agent._connected = env_id, False
            below += agent.subordinates.values()

    def step(self, global_state: Any) -> dict[str, Any]:
        """Step this agent and all agents below it, without physics. Returns this agent's info.

        Use this to step agents without an environment. `KafkaMultiAgentEnv` does not call it. In
        ASYNC, first call `KafkaBroker.begin_step` and publish the action; the info is then
        published as well. In SYNC, first pass the action to `hand`.
        """
        sync = self.execution_mode is ExecutionMode.SYNC
        if not sync and self.kafka_broker is None:
            raise WrongStateError(
                f"agent {self.agent_id!r}: execution_mode is ASYNC, but it has no kafka_broker; "
                "pass one, or use ExecutionMode.SYNC"
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
        """Return a subclass's own state, as arrays and JSON values."""
        return {}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""

    @property
    def np_random(self) -> np.random.Generator:
        """The agent's own generator. Seeded from the operating system until the first seed."""
        if self._np_random is None:
            self._np_random = np.random.default_rng()
        return self._np_random

    @np_random.setter
    def np_random(self, generator: np.random.Generator) -> None:
        self._np_random = generator

    def descend(self) -> None:
        """Receive the parent's action, call `decide`, and send its result to the subordinates."""
        action = self._receive_action_from_parent()
        if self.trained:
            if self.policy_input is _NOTHING:
                self.policy_input = self.policy_observation(self._last_observation, action)
                return
            self.policy_input = _NOTHING
        if int(self._timestep) % self.decide_every == 0:
            self._last_action = self.decide(self._last_observation, action)
        decided = self._last_action
        if self.subordinates:
            self._send_actions_to_subordinates(decided)

    def policy_inputs(self) -> list[Any]:
        """Return what the policy observes in the step that has begun, in a list that is empty if none has."""
        return [] if self.policy_input is _NOTHING else [self.policy_input]

    def load_policy_inputs(self, inputs: list[Any]) -> None:
        """Restore a list returned by `policy_inputs`."""
        self.policy_input = inputs[0] if inputs else _NOTHING

    def ascend(self, global_state: Any) -> dict[str, Any]:
        """Receive the subordinates' infos, observe, and send and return this agent's own info."""
        infos = self._receive_infos_from_subordinates(global_state) if self.subordinates else {}
        self._last_observation = self.observe(global_state)
        self._compiled_info = compiled_info = self.compile_info(infos)
        self._send_info_to_parent(compiled_info)
        self._timestep += 1.0
        self.mailbox.clear()
        return compiled_info

    def hand(self, action: Any) -> None:
        """Store the parent's action for `descend`."""
        self.handed = action

    def take_report(self) -> dict[str, Any]:
        """Return this agent's info of the step for its parent, and clear it.

        Raises:
            MissingMessageError: if there is no info.
        """
        report, self.reported = self.reported, _NOTHING
        if report is _NOTHING:
            # `ascend` has already counted this step.
            raise self._missing("info", self.agent_id, self.parent_id, int(self._timestep) - 1)
        return report  # type: ignore[no-any-return]

    def _missing(
        self, kind: str, sender: str | None, recipient: str | None, step: int
    ) -> MissingMessageError:
        return MissingMessageError(
            f"environment {self.env_id!r}, {kind} {sender!r} -> {recipient!r}, step {step}: expected "
            "a message, got none: it was not sent",
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
        """Send each subordinate its action. In SYNC, this runs the whole subtree's way down."""
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
                f"{list(self.subordinates)}, got actions for {list(actions)}",
                environment=self.env_id,
                step=int(self._timestep),
            )
        return ValueError(
            f"agent {self.agent_id!r}: decide: expected a dict with an action for each of "
            f"{sorted(self.subordinates)}, got {actions!r}"
        )

    def _receive_infos_from_subordinates(self, global_state: Any) -> dict[str, dict[str, Any]]:
        """Return the subordinates' infos of this step, by id. In SYNC, this runs the subtree's way up."""
        infos = {}
        for name, subordinate in self.subordinates.items():
            if not self._channels_down:
                subordinate.ascend(global_state)
            infos[name] = subordinate.take_report()
        return infos

    def _send_info_to_parent(self, compiled_info: dict[str, Any]) -> None:
        """Publish this agent's info, or, in SYNC, store it for the parent that called."""
        if self.info_channel is not None:
            self.info_channel.put(compiled_info, self._timestep)
        else:
            self.reported = compiled_info

    def _setup_kafka_topics(self) -> None:
        """Create the channels to parent and subordinates, or drop them in SYNC."""
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
