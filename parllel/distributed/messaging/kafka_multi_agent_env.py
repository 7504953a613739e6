"""A multi-agent environment whose agents exchange messages, for Gymnasium and PettingZoo."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np

from parllel.distributed.messaging.agent import Agent, ExecutionMode
from parllel.distributed.messaging.channel import Channel
from parllel.distributed.messaging.env_state import load_multi_agent_state, multi_agent_state
from parllel.distributed.messaging.errors import MissingMessageError
from parllel.distributed.messaging.hierarchy import (
    ENVIRONMENT,
    make_hierarchy,
    matching_names,
    trained_agents,
)
from parllel.distributed.messaging.hosts.host_registry import HostRegistry
from parllel.distributed.messaging.kafka_broker import KafkaBroker
from parllel.distributed.messaging.kafka_parallel_env import KafkaParallelEnv
from parllel.distributed.messaging.step_algorithm import (
    begin_steps,
    plan_step,
    step_environments,
)
from parllel.distributed.messaging.topic import TopicManager
from parllel.envs.rewards import reward_of
from parllel.errors import ClosedError, WrongStateError
from parllel.seeding import Seeds
from parllel.types import State


class RootsStep(NamedTuple):
    """The result of a step, keyed by root, or by trained agent if there are any.

    observations, rewards, infos: dicts keyed by agent.
    terminated, truncated: how the episode ended. It ends for all agents at the same time.
    """

    observations: dict[str, Any]
    rewards: dict[str, float]
    terminated: bool
    truncated: bool
    infos: dict[str, dict[str, Any]]


class KafkaMultiAgentEnv(gym.Env[dict[str, Any], dict[str, Any]]):
    """A hierarchy of agents, the messages between them, and the physics that the leaves act on.

    As a Gymnasium environment it has Dict spaces with one entry per root, `step` returns the sum of
    the roots' rewards, and `info` is `{"agents": each root's info, "rewards": each root's reward}`.
    `step_roots` returns all results keyed by root, `as_parallel_env()` returns a PettingZoo
    parallel environment, and `VectorizedKafkaEnv` steps many of these together.

    By default the physics only records the leaves' last actions. Subclasses override `apply_actions`,
    `get_global_state` and `reset_physics`, and for checkpoints `physics_state` and `load_physics_state`.

    Args:
        agents: all agents, keyed by id. No other environment may use them.
        root_agents: ids of the agents whose parent is the environment, and whose actions `step` takes.
        kafka_broker: the broker. `close` leaves it open. Agents in SYNC do not need one.
        env_id: any non-empty string that is unique on this broker.
        max_steps: number of steps after which an episode is truncated; None for no limit.
        hosted: patterns of the ids of agents that an `AgentHost` runs, such as ["device_*"]. Here,
            only `observe` of these agents is called. Waits for their hosts, for as long as the
            broker's time-out.
        trained: patterns of the ids of agents at any level whose policies are trained, such as
            ["device_*"]. Then spaces, `step` and results are keyed by these agents instead of the
            roots. Each receives its parent's action first, and its policy acts in the same step, see
            `Agent.policy_observation`. Roots that are not trained receive the action None. No trained
            agent may be above another.

    Attributes:
        policy_agents: ids of the agents whose actions `step` takes: the trained agents, or the roots.

    Raises:
        ValueError, TypeError: if the agents do not form trees below the roots, see
            `make_hierarchy`; if their execution modes differ, if they belong to another
            environment, or if they need a broker and none is given; if a pattern matches no agent,
            or an agent is both hosted and trained; if `policy_agents` differ in `decide_every`.
        WrongStateError: if another environment holds the id.
        HostError: if a hosted agent has no host, or two; or if the run's name is in use.
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
        agents: Mapping[str, Agent],
        root_agents: Sequence[str],
        kafka_broker: KafkaBroker | None = None,
        env_id: str = "default",
        *,
        max_steps: int | None = None,
        hosted: Sequence[str] = (),
        trained: Sequence[str] = (),
    ) -> None:
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps: expected at least 1 or None, got {max_steps}")
        self.agents = dict(agents)
        # Before `list`, which would split a string into characters.
        self.hierarchy = make_hierarchy(self.agents, root_agents)
        self.root_agents = list(root_agents)
        self._trained = trained_agents(self.hierarchy, trained)
        self.policy_agents = [agent.agent_id for agent in self._trained] or self.root_agents
        self.steps_per_action = _steps_per_action(self.agents, self.policy_agents)
        self.env_id = env_id
        self.max_steps = max_steps
        self.timestep = 0
        self.terminated = self.truncated = False
        # The options of the last reset, for `reset_physics`.
        self.reset_options: dict[str, Any] = {}
        mode = _mode_of(self.agents)
        if mode is ExecutionMode.ASYNC and kafka_broker is None:
            raise ValueError(
                f"environment {env_id!r}: its agents are in ASYNC mode and require a broker; pass "
                "kafka_broker=KafkaBroker(), or create the agents with "
                "execution_mode=ExecutionMode.SYNC"
            )
        self.kafka_broker = kafka_broker if mode is ExecutionMode.ASYNC else None
        # Why the next step needs a reset first; None if it does not.
        self._needs_reset: str | None = "it was never reset"
        # Before the first reset there is no state of the physics to save.
        self._has_physics = False
        self._step = 0  # the number of the last step that began
        self._leaf_actions: dict[str, Any] = {}
        self._acting = frozenset(self.policy_agents)
        # False while several environments are reset, whose next steps then begin together.
        self._begins_steps = True
        self._closed = False
        _set_spaces(self)
        self.hosted = hosted_agents(self.agents, hosted, self.kafka_broker)
        for agent in self._trained:
            if agent.agent_id in self.hosted:
                raise ValueError(
                    f"trained: {agent.agent_id!r} is also in hosted; its policy acts in this process"
                )
        # Of hosted agents: the channels for resets, those for observations, and those for leaves' actions.
        self._resets: dict[str, Channel] = {}
        self._observed: dict[str, Channel] = {}
        self._decisions: dict[str, Channel | None] = {}
        self.lease = 0 if self.kafka_broker is None else self.kafka_broker.join(env_id)
        try:
            self._connect()
            for agent in self.agents.values():
                agent._environment = self
                agent.trained = agent in self._trained
            if self.hosted:
                self._hosts().await_hosts(env_id)
        except BaseException:
            self.close()
            raise

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode. Returns observations by root or trained agent, and an empty dict.

        A seed seeds the environment's `np_random`, which the physics use, and that of each agent.
        Messages in transit belong to the previous episode and are dropped.
        """
        _check_open(self._closed, self.env_id)
        super().reset(seed=seed)
        # Cleared at the end: after an error half-way, the environment cannot be stepped.
        self._needs_reset = "its last reset failed"
        if seed is not None:
            seeds = Seeds(seed)
            for name, agent in self.agents.items():
                if name not in self.hosted:
                    agent.np_random = seeds.generator(name)
        if self.hosted:
            self._hosts().await_hosts(self.env_id)
        if self.kafka_broker is not None:
            # Before the agents reset: what they publish in `reset` belongs to the new episode.
            self.kafka_broker.clear_environment(self.env_id)
        self.timestep = 0
        self.terminated = self.truncated = False
        self.reset_options = dict(options or {})
        self._leaf_actions = {}
        for agent in self.agents.values():
            # In case a subclass's `reset` does not call `Agent.reset`.
            agent._forget()
            if agent.agent_id not in self.hosted:
                agent.reset()
        self.reset_physics()
        self._has_physics = True
        state = self.get_global_state()
        for agent in self.agents.values():
            agent._last_observation = agent.observe(state)
        for name, channel in self._resets.items():
            channel.put(
                {
                    "reset": None if seed is None else str(seed),  # of any size
                    "observation": self.agents[name]._last_observation,
                    "hosts": self._hosts().holders_near(self.env_id, name),
                }
            )
        if not self._trained:
            self._needs_reset = None
        elif self._begins_steps:
            begin_steps([self])
        return self.first_observations(), {}

    def step(
        self, action: dict[str, Any]
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Step with an action for each of `policy_agents`. Returns Gymnasium's five results.

        See the class for reward and info.
        """
        result = self.step_roots(action)
        return (
            result.observations,
            float(sum(result.rewards.values())),
            result.terminated,
            result.truncated,
            {"agents": result.infos, "rewards": result.rewards},
        )

    def step_roots(self, actions: Mapping[str, Any]) -> RootsStep:
        """Step with an action for each of `policy_agents`, and return the results by agent.

        Raises:
            WrongStateError: if the episode has ended or a step has failed since the last reset.
            MissingMessageError: if one of them has no action, or a message does not arrive within the
                broker's time-out. Names the environment, channel and step.
            ValueError: if an action is for another agent.
        """
        return step_environments([self], [actions])[0]

    def set_env_id(self, env_id: str) -> None:
        """Change the environment's id, even during an episode. Messages under the old id are dropped.

        Subscriptions and custom topics of the old id are removed.
        """
        _check_open(self._closed, self.env_id)
        if self.kafka_broker is not None:
            old = self.env_id
            if env_id == old:
                return
            if self.hosted:
                raise WrongStateError(
                    f"environment {old!r}: set_env_id: expected no agents with hosts, got "
                    f"{sorted(self.hosted)}; create an environment with the other id"
                )
            # Joined before the old id is released: if it is in use, nothing has changed.
            self.lease = self.kafka_broker.join(env_id)
            self.kafka_broker.leave(old)
        self.env_id = env_id
        self._connect()
        self.resume_step()

    def as_parallel_env(self) -> KafkaParallelEnv:
        """Return this environment as a PettingZoo parallel environment of `policy_agents`."""
        return KafkaParallelEnv(self)

    def close(self) -> None:
        """Release the id. The broker stays open. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for agent in self.agents.values():
            agent._environment = None
        if self.kafka_broker is not None:
            # A broker that was closed first has already dropped the environment.
            with contextlib.suppress(ClosedError):
                if self.hosted:
                    self._hosts().release(self.env_id)
                self.kafka_broker.leave(self.env_id)

    def get_global_state(self) -> Any:
        """Return the state that agents observe. By default the step number and the leaves' last actions."""
        return {"timestep": self.timestep, "actions": self._leaf_actions}

    def apply_actions(self, actions: dict[str, Any]) -> None:
        """Advance the physics by one step.

        actions: actions of the leaves, keyed by id. Do not modify them.
        """

    def reset_physics(self) -> None:
        """Reset the physics for a new episode, using `np_random` and `reset_options`."""

    def is_terminated(self, all_info: dict[str, dict[str, Any]]) -> bool:
        """Return whether the episode terminated with this step. False by default.

        all_info: infos keyed by root.
        """
        return False

    def is_truncated(self, all_info: dict[str, dict[str, Any]]) -> bool:
        """Return whether to truncate the episode, in addition to `max_steps`. False by default."""
        return False

    def physics_state(self) -> State:
        """Return the state of a subclass's physics, as arrays and JSON values."""
        return {}

    def load_physics_state(self, state: State) -> None:
        """Restore a state returned by `physics_state`."""

    def state(self) -> State:
        """Return the state for a checkpoint, except `np_random`, which `parllel.envs.states` adds."""
        return multi_agent_state(self)

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state` of an environment built the same way. Its id may differ."""
        load_multi_agent_state(self, state)

    def first_observations(self) -> dict[str, Any]:
        """Return the observations of an episode's first step, by root or trained agent."""
        if self._trained:
            return self._extract_observations({})
        return {root.agent_id: root._last_observation for root in self.hierarchy.roots}

    def _extract_observations(self, all_info: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the policy's observations, by root or trained agent.

        Of a root that is "observation" of the info, else the last `observe`.
        """
        if self._trained:
            return {agent.agent_id: agent.policy_input for agent in self._trained}
        return {
            root.agent_id: all_info[root.agent_id].get("observation", root._last_observation)
            for root in self.hierarchy.roots
        }

    def _extract_rewards(self, all_info: dict[str, dict[str, Any]]) -> dict[str, float]:
        """Return the rewards, by root or trained agent: "reward" of the info, else 0."""
        return {name: info.get("reward", 0.0) for name, info in all_info.items()}

    def check_step(self, actions: Mapping[str, Any]) -> None:
        """Raise unless the environment can step with these actions. Called by the step algorithm."""
        _check_open(self._closed, self.env_id)
        if self._needs_reset is not None:
            raise WrongStateError(f"environment {self.env_id!r}: {self._needs_reset}; call reset")
        if not isinstance(actions, Mapping):
            raise TypeError(
                f"environment {self.env_id!r}: actions: expected a dict with an action for each of "
                f"{self.policy_agents}, got {actions!r:.200}"
            )
        if actions.keys() == self._acting:
            return
        unknown = sorted(map(str, actions.keys() - self._acting))
        which = "which are not " + ("trained" if self._trained else "roots")
        for name in self.policy_agents:
            if name not in actions:
                given = f", got actions also for {unknown}, {which}" if unknown else ""
                raise MissingMessageError(
                    f"environment {self.env_id!r}, action {ENVIRONMENT!r} -> {name!r}, step "
                    f"{self.timestep}: expected an action for each of {self.policy_agents}" + given,
                    environment=self.env_id,
                    step=self.timestep,
                )
        raise ValueError(
            f"environment {self.env_id!r}: expected actions for {self.policy_agents}, got actions "
            f"for {unknown}, {which}"
        )

    def begin_step(self, actions: Mapping[str, Any]) -> None:
        """Send each root its action, or give each trained agent that of its policy, without a message.

        Called by the step algorithm.
        """
        # Kept for the message of `abandon_step`: physics may have advanced `timestep` by then.
        self._step = self.timestep
        if not self._trained:
            self._send_to_roots(actions)
        for agent in self._trained:
            agent.hand(actions[agent.agent_id])

    def begin_roots(self) -> None:
        """Send each root the action None, as policies act below. Called by the step algorithm."""
        # Only now, because a trained agent cannot act before the step has begun.
        self._needs_reset = None
        self._step = self.timestep
        self._send_to_roots(dict.fromkeys(self.root_agents))

    def resume_step(self) -> None:
        """Tell the broker which step has begun, if it does not know, because the id or the state is new."""
        if self._trained and self._needs_reset is None and self.kafka_broker is not None:
            self.kafka_broker.begin_step([self.env_id], [self.timestep])

    def _send_to_roots(self, actions: Mapping[str, Any]) -> None:
        for root in self.hierarchy.roots:
            action = actions[root.agent_id]
            if root.action_channel is None:
                root.hand(action)
            else:
                root.action_channel.put({"action": action}, float(self.timestep))

    def abandon_step(self) -> None:
        """Require a reset after a failed step. Called by the step algorithm."""
        self._needs_reset = f"step {self._step} failed"

    def run_physics(self) -> Any:
        """Apply the leaves' actions, and return the global state. Called by the step algorithm."""
        actions = {leaf.agent_id: leaf._last_action for leaf in self.hierarchy.leaves}
        self._leaf_actions = actions
        self.apply_actions(actions)
        self.timestep += 1
        state = self.get_global_state()
        for name, channel in self._observed.items():
            agent = self.agents[name]
            agent._last_observation = agent.observe(state)
            channel.put({"observation": agent._last_observation}, float(self.timestep))
        return state

    def finish_step(self) -> RootsStep:
        """Collect the roots' infos into the result of the step. Called by the step algorithm."""
        infos: dict[str, dict[str, Any]] = {}
        for root in self.hierarchy.roots:
            infos[root.agent_id] = root.take_report()
        observations = self._extract_observations(infos)
        own = {agent.agent_id: agent._compiled_info for agent in self._trained} or infos
        rewards = {
            name: reward_of(reward, self.env_id, name)
            for name, reward in self._extract_rewards(own).items()
        }
        self.terminated = bool(self.is_terminated(infos))
        out_of_steps = self.max_steps is not None and self.timestep >= self.max_steps
        self.truncated = out_of_steps or bool(self.is_truncated(infos))
        self._needs_reset = "its episode has ended" if self.terminated or self.truncated else None
        return RootsStep(observations, rewards, self.terminated, self.truncated, own)

    def joined(self, before: RootsStep, last: RootsStep) -> RootsStep:
        """Return the result of two steps in a row as that of one. Called by the step algorithm."""
        rewards = {name: before.rewards[name] + reward for name, reward in last.rewards.items()}
        return last._replace(rewards=rewards)

    def _connect(self) -> None:
        """Pass broker and id to the agents, create their channels, and plan the step."""
        broker, env_id = self.kafka_broker, self.env_id
        if self.hosted and broker is not None:
            parents = {name: str(agent.parent_id) for name, agent in self.agents.items()}
            self._hosts().open(env_id, self.lease, parents, self.hosted)
            action, info = TopicManager.action_topic, TopicManager.info_topic
            for name in sorted(self.hosted):
                self.agents[name].np_random = cast(np.random.Generator, _NoRandomNumbers(name))
                self._resets[name] = broker.channel(action(ENVIRONMENT, name, env_id))
                self._observed[name] = broker.channel(info(ENVIRONMENT, name, env_id))
                leaf = not self.agents[name].subordinates
                self._decisions[name] = (
                    broker.channel(action(name, ENVIRONMENT, env_id)) if leaf else None
                )
        for agent in self.agents.values():
            agent.kafka_broker, agent.env_id = broker, env_id
            agent._setup_kafka_topics()
        self.env_step = plan_step(
            env_id, broker, self.hierarchy.roots, self._decisions, self._trained
        )

    def _hosts(self) -> HostRegistry:
        assert self.kafka_broker is not None
        assert self.kafka_broker.hosts is not None
        return self.kafka_broker.hosts


def reset_environments(
    envs: Sequence[KafkaMultiAgentEnv],
    seeds: Sequence[int | None],
    options: dict[str, Any] | None,
) -> list[dict[str, Any]]:
    """Begin an episode in each environment, and return their observations.

    Where agents are trained, messages go down to them hop by hop for all environments together.
    """
    observations = []
    for env, seed in zip(envs, seeds, strict=True):
        env._begins_steps = False
        try:
            observations.append(env.reset(seed=seed, options=options)[0])
        finally:
            env._begins_steps = True
    begin_steps(envs)
    return [
        env.first_observations() if env.env_step.above else observation
        for env, observation in zip(envs, observations, strict=True)
    ]


class _NoRandomNumbers:
    """The `np_random` of a hosted agent here, where a draw would not be that of one process."""

    def __init__(self, agent: str) -> None:
        self._agent = agent

    def __getattr__(self, name: str) -> Any:
        raise WrongStateError(
            f"agent {self._agent!r}: observe: expected no use of np_random, because a host runs the agent; "
            "draw in decide or compile_info"
        )


def _check_open(closed: bool, env_id: str) -> None:
    if closed:
        raise ClosedError(f"environment {env_id!r}: used after it was closed")


def _mode_of(agents: Mapping[str, Agent]) -> ExecutionMode:
    """Return the common mode of the agents. Raises ValueError if modes differ or an agent is in use."""
    for agent in agents.values():
        if agent._environment is not None:
            raise ValueError(
                f"agent {agent.agent_id!r} already belongs to environment {agent.env_id!r}; create "
                "new agents for each environment"
            )
    modes = {agent.execution_mode: name for name, agent in agents.items()}
    if len(modes) > 1:
        named = ", ".join(f"{name!r} is in {mode.name}" for mode, name in modes.items())
        raise ValueError(
            f"all agents of an environment must have the same execution_mode, but {named}"
        )
    return next(iter(modes))


def _steps_per_action(agents: Mapping[str, Agent], names: Sequence[str]) -> int:
    """Return the common `decide_every` of agents that policies act for. Raises ValueError if they differ."""
    found = {agents[name].decide_every: name for name in names}
    if len(found) > 1:
        named = ", ".join(f"{number} of {name!r}" for number, name in found.items())
        raise ValueError(
            f"decide_every: expected the same number for all agents that policies act for, got {named}"
        )
    return next(iter(found))


def hosted_agents(
    agents: Mapping[str, Agent], patterns: Sequence[str], broker: KafkaBroker | None
) -> frozenset[str]:
    """Return the ids of the agents that hosts run.

    Raises:
        ValueError: if a pattern matches no agent, or the broker has no hosts.
        TypeError: if `patterns` is a str.
    """
    found = matching_names("hosted", list(agents), patterns)
    if found and (broker is None or broker.hosts is None):
        raise ValueError(
            'hosted: expected a broker for agents with hosts, KafkaBroker(mode="kafka", hosts=True, ...), '
            f"got {'none' if broker is None else 'one without hosts=True'}"
        )
    return found


def _set_spaces(env: KafkaMultiAgentEnv) -> None:
    """Set Dict spaces by agent, if all of `policy_agents` have that space."""
    for kind in ("observation_space", "action_space"):
        found = {name: getattr(env.agents[name], kind) for name in env.policy_agents}
        if all(space is not None for space in found.values()):
            setattr(env, kind, gym.spaces.Dict(found))
