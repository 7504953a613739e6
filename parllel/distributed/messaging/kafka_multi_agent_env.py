"""One environment of agents that talk to each other, for gymnasium, and for PettingZoo through a face."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym

from parllel.distributed.messaging.agent import Agent, ExecutionMode
from parllel.distributed.messaging.env_state import (
    load_multi_agent_state,
    multi_agent_state,
    whole_state,
)
from parllel.distributed.messaging.errors import MissingMessageError
from parllel.distributed.messaging.hierarchy import ENVIRONMENT, make_hierarchy
from parllel.distributed.messaging.kafka_broker import KafkaBroker
from parllel.distributed.messaging.step_algorithm import plan_step, step_environments
from parllel.envs.rewards import reward_of
from parllel.envs.states.env_state import load_env_state
from parllel.errors import ClosedError, WrongStateError
from parllel.seeding import Seeds
from parllel.types import State


class RootsStep(NamedTuple):
    """What one step gave the roots.

    observations, rewards, infos: by root. terminated, truncated: of the episode, which ends for all roots
        at once.
    """

    observations: dict[str, Any]
    rewards: dict[str, float]
    terminated: bool
    truncated: bool
    infos: dict[str, dict[str, Any]]


class KafkaMultiAgentEnv(gym.Env[dict[str, Any], dict[str, Any]]):
    """Agents, the messages between them, and the physics that their leaves act on.

    As a gymnasium environment it has Dict spaces with one entry per root, `step` returns the sum of the
    roots' rewards, and `info` is `{"agents": each root's info, "rewards": each root's reward}`.
    `step_roots` returns everything by root, `as_parallel_env()` is PettingZoo's face, and
    `VectorizedKafkaEnv` has the lists of dicts.

    By default physics only keeps the leaves' last actions. For more, a subclass overrides `apply_actions`,
    `get_global_state` and `reset_physics`, and for checkpoints `physics_state` and `load_physics_state`.

    Args:
        agents: all agents by id, made for this environment alone.
        root_agents: ids of those whose parent is the environment, and whose actions `step` takes.
        kafka_broker: not closed here. Not needed for agents in SYNC.
        env_id: any non-empty string that no other environment has on this broker.
        max_steps: an episode is truncated after so many steps; None: never.

    Raises:
        ValueError, TypeError: if the agents are not trees below the roots, see `make_hierarchy`; if some
            are in SYNC and some in ASYNC, belong to another environment already, or need a broker and get
            none.
        MessagingError: if another environment has the id.
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
    ) -> None:
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps: expected at least 1 or None, got {max_steps}")
        self.agents = dict(agents)
        # Before `list`, which would take a string apart.
        self.hierarchy = make_hierarchy(self.agents, root_agents)
        self.root_agents = list(root_agents)
        self.env_id = env_id
        self.max_steps = max_steps
        self.timestep = 0
        self.terminated = self.truncated = False
        # What the last reset was given as `options`, for `reset_physics`.
        self.reset_options: dict[str, Any] = {}
        mode = _mode_of(self.agents)
        if mode is ExecutionMode.ASYNC and kafka_broker is None:
            raise ValueError(
                f"environment {env_id!r}: its agents are in ASYNC and need kafka_broker=KafkaBroker(); or "
                "give them execution_mode=ExecutionMode.SYNC"
            )
        self.kafka_broker = kafka_broker if mode is ExecutionMode.ASYNC else None
        # Not a step's error alone: also before the first reset.
        self._needs_reset: str | None = "it was never reset"
        # Before the first reset there is no state of physics that could be saved.
        self._has_physics = False
        self._step = 0  # the number of the last step that began
        self._leaf_actions: dict[str, Any] = {}
        self._roots = frozenset(self.root_agents)
        self._closed = False
        _set_spaces(self)
        self.lease = 0 if self.kafka_broker is None else self.kafka_broker.join(env_id)
        self._connect()
        for agent in self.agents.values():
            agent._environment = self

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; return the roots' observations, and an empty dict.

        A seed reaches `np_random` of the environment, for physics, and that of each agent.
        Messages that are still on their way are lost: they belong to the episode before.
        """
        _check_open(self._closed, self.env_id)
        super().reset(seed=seed)
        self._needs_reset = "its last reset failed"
        if seed is not None:
            seeds = Seeds(seed)
            for name, agent in self.agents.items():
                agent.np_random = seeds.generator(name)
        if self.kafka_broker is not None:
            self.kafka_broker.clear_environment(self.env_id)
        self.timestep = 0
        self.terminated = self.truncated = False
        self.reset_options = dict(options or {})
        self._leaf_actions = {}
        for agent in self.agents.values():
            # For a subclass whose `reset` does not call that of Agent.
            agent._forget()
            agent.reset()
        self.reset_physics()
        self._has_physics = True
        state = self.get_global_state()
        for agent in self.agents.values():
            agent._last_observation = agent.observe(state)
        self._needs_reset = None
        return {root.agent_id: root._last_observation for root in self.hierarchy.roots}, {}

    def step(
        self, action: dict[str, Any]
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Send each root its action; return gymnasium's five results, see the class for reward and info."""
        result = self.step_roots(action)
        return (
            result.observations,
            float(sum(result.rewards.values())),
            result.terminated,
            result.truncated,
            {"agents": result.infos, "rewards": result.rewards},
        )

    def step_roots(self, actions: Mapping[str, Any]) -> RootsStep:
        """Send each root its action, and return what each root gets.

        Raises:
            WrongStateError: if the episode has ended, or a step has failed, and there was no reset since.
            MissingMessageError: naming environment, channel and step, if a root gets no action, or a message
                does not come within the broker's time-out.
            ValueError: if an action is for an agent that is no root.
        """
        return step_environments([self], [actions])[0]

    def set_env_id(self, env_id: str) -> None:
        """Take another id, in the middle of an episode too; what is still under the old one is lost.

        Subscriptions and custom topics stay with the old id, and end.
        """
        _check_open(self._closed, self.env_id)
        if self.kafka_broker is not None:
            old = self.env_id
            if env_id == old:
                return
            # Taken before the old one is given back: if it is not to be had, nothing has changed.
            self.lease = self.kafka_broker.join(env_id)
            self.kafka_broker.leave(old)
        self.env_id = env_id
        self._connect()

    def as_parallel_env(self) -> KafkaParallelEnv:
        """Return PettingZoo's parallel interface to this environment; its agents are the roots."""
        return KafkaParallelEnv(self)

    def close(self) -> None:
        """Give back the id; the broker stays open. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for agent in self.agents.values():
            agent._environment = None
        if self.kafka_broker is not None:
            # The broker may have been closed first, and has nothing of the environment then.
            with contextlib.suppress(ClosedError):
                self.kafka_broker.leave(self.env_id)

    def get_global_state(self) -> Any:
        """Return what agents observe; by default the number of steps, and each leaf's last action."""
        return {"timestep": self.timestep, "actions": self._leaf_actions}

    def apply_actions(self, actions: dict[str, Any]) -> None:
        """Let physics run for one step. actions: of the leaves, by id; do not change them."""

    def reset_physics(self) -> None:
        """Bring physics to the start of an episode, with `np_random` and `reset_options`."""

    def is_terminated(self, all_info: dict[str, dict[str, Any]]) -> bool:
        """Return whether the episode is over after this step; False by default. all_info: by root."""
        return False

    def is_truncated(self, all_info: dict[str, dict[str, Any]]) -> bool:
        """Return whether the episode is cut off after this step, beside `max_steps`; False by default."""
        return False

    def physics_state(self) -> State:
        """Return what physics of your own needs to continue, as arrays and JSON values."""
        return {}

    def load_physics_state(self, state: State) -> None:
        """Take back what `physics_state` returned."""

    def state(self) -> State:
        """Return all that a checkpoint needs but `np_random`; `parllel.envs.states.env_state` adds that."""
        return multi_agent_state(self)

    def load_state(self, state: State) -> None:
        """Take back what `state` returned, from an environment made alike; it may have another id."""
        load_multi_agent_state(self, state)

    def _extract_observations(self, all_info: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Return what the policy sees, by root: "observation" of its info; without, what it observed."""
        return {
            root.agent_id: all_info[root.agent_id].get("observation", root._last_observation)
            for root in self.hierarchy.roots
        }

    def _extract_rewards(self, all_info: dict[str, dict[str, Any]]) -> dict[str, float]:
        """Return each root's reward: "reward" of its info, 0 without."""
        return {root: info.get("reward", 0.0) for root, info in all_info.items()}

    def check_step(self, actions: Mapping[str, Any]) -> None:
        """Raise unless the environment can take a step with these actions; for the step algorithm."""
        _check_open(self._closed, self.env_id)
        if self._needs_reset is not None:
            raise WrongStateError(f"environment {self.env_id!r}: {self._needs_reset}; call reset")
        if not isinstance(actions, Mapping):
            raise TypeError(
                f"environment {self.env_id!r}: actions: expected a dict with an action for each of "
                f"{self.root_agents}, got {actions!r:.200}"
            )
        if actions.keys() == self._roots:
            return
        unknown = sorted(map(str, actions.keys() - self._roots))
        for root in self.root_agents:
            if root not in actions:
                given = f", got also some for {unknown}, which are no roots" if unknown else ""
                raise MissingMessageError(
                    f"environment {self.env_id!r}, action {ENVIRONMENT!r} -> {root!r}, step "
                    f"{self.timestep}: expected an action for each of {self.root_agents}" + given,
                    environment=self.env_id,
                    step=self.timestep,
                )
        raise ValueError(
            f"environment {self.env_id!r}: actions for {unknown}, which are no roots; expected "
            f"{self.root_agents}"
        )

    def begin_step(self, actions: Mapping[str, Any]) -> None:
        """Send each root its action; for the step algorithm."""
        self._step = self.timestep
        for root in self.hierarchy.roots:
            action = actions[root.agent_id]
            if root.action_channel is None:
                root.hand(action)
            else:
                root.action_channel.put({"action": action}, float(self.timestep))

    def abandon_step(self) -> None:
        """Require a reset; for the step algorithm."""
        self._needs_reset = f"step {self._step} failed"

    def run_physics(self) -> Any:
        """Let the leaves act, and return the global state; for the step algorithm."""
        actions = {leaf.agent_id: leaf._last_action for leaf in self.hierarchy.leaves}
        self._leaf_actions = actions
        self.apply_actions(actions)
        self.timestep += 1
        return self.get_global_state()

    def finish_step(self) -> RootsStep:
        """Take what the roots report; for the step algorithm."""
        infos: dict[str, dict[str, Any]] = {}
        for root in self.hierarchy.roots:
            infos[root.agent_id] = root.take_report()
        observations = self._extract_observations(infos)
        rewards = {
            root: reward_of(reward, self.env_id, root)
            for root, reward in self._extract_rewards(infos).items()
        }
        self.terminated = bool(self.is_terminated(infos))
        at_most = self.max_steps is not None and self.timestep >= self.max_steps
        self.truncated = at_most or bool(self.is_truncated(infos))
        self._needs_reset = "its episode has ended" if self.terminated or self.truncated else None
        return RootsStep(observations, rewards, self.terminated, self.truncated, infos)

    def _connect(self) -> None:
        """Give the agents the broker and the id, and find the way of a step along their channels."""
        for agent in self.agents.values():
            agent.kafka_broker, agent.env_id = self.kafka_broker, self.env_id
            agent._setup_kafka_topics()
        self.env_step = plan_step(self.env_id, self.kafka_broker, self.hierarchy.roots)


class KafkaParallelEnv:
    """The roots of an environment as PettingZoo's agents; all begin and end together.

    It needs no PettingZoo, and goes into a cage by `parllel.envs.ParallelEnvAdapter`.

    Raises:
        ValueError: if a root has no space.
    """

    render_mode = None

    def __init__(self, env: KafkaMultiAgentEnv) -> None:
        self.env = env
        self.metadata = {"name": type(env).__name__, "render_modes": [], "is_parallelizable": True}
        self.possible_agents: list[str] = list(env.root_agents)
        self.agents: list[str] = []
        self.observation_spaces = {
            root: _space(env, root, "observation") for root in self.possible_agents
        }
        self.action_spaces = {root: _space(env, root, "action") for root in self.possible_agents}

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """Return the observation space of a root; always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gym.Space[Any]:
        """Return the action space of a root; always the same object."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode; return observations and infos by root."""
        observations, _ = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return observations, {root: {} for root in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Return observations, rewards, terminations, truncations and infos by root."""
        result = self.env.step_roots(actions)
        terminations = dict.fromkeys(self.possible_agents, result.terminated)
        truncations = dict.fromkeys(self.possible_agents, result.truncated)
        if result.terminated or result.truncated:
            self.agents = []
        return result.observations, result.rewards, terminations, truncations, result.infos

    def state(self) -> State:
        """Return the state of the environment."""
        return {"env": whole_state(self.env), "agents": list(self.agents)}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""
        load_env_state(self.env, state["env"])
        self.agents = list(state["agents"])

    @property
    def unwrapped(self) -> KafkaParallelEnv:
        """Return this object."""
        return self

    def render(self) -> None:
        """Return None: there is no picture."""

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _space(env: KafkaMultiAgentEnv, root: str, kind: str) -> gym.Space[Any]:
    space: gym.Space[Any] | None = getattr(env.agents[root], f"{kind}_space")
    if space is None:
        raise ValueError(
            f"environment {env.env_id!r}: root {root!r} has no {kind}_space; give the agent one"
        )
    return space


def _check_open(closed: bool, env_id: str) -> None:
    if closed:
        raise ClosedError(f"environment {env_id!r} was closed")


def _mode_of(agents: Mapping[str, Agent]) -> ExecutionMode:
    """Return the mode of all agents; raise ValueError if they differ, or an agent is taken."""
    for agent in agents.values():
        if agent._environment is not None:
            raise ValueError(
                f"agent {agent.agent_id!r} belongs to environment {agent.env_id!r} already; each environment "
                "needs agents of its own, so let the factory make new ones"
            )
    modes = {agent.execution_mode: name for name, agent in agents.items()}
    if len(modes) > 1:
        named = ", ".join(f"{name!r} is in {mode.name}" for mode, name in modes.items())
        raise ValueError(f"agents of one environment must have one execution_mode, but {named}")
    return next(iter(modes))


def _set_spaces(env: KafkaMultiAgentEnv) -> None:
    """Give the environment Dict spaces by root, where all roots have theirs."""
    for kind in ("observation_space", "action_space"):
        found = {root.agent_id: getattr(root, kind) for root in env.hierarchy.roots}
        if all(space is not None for space in found.values()):
            setattr(env, kind, gym.spaces.Dict(found))
