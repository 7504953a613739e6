"""Checkpoints of a multi-agent environment, taken between two steps.

the environment    the number of the step, whether the episode has ended, physics, the leaves' last actions
its agents         what each one's `state()` returns
the broker         lease, epoch, step, and sequence numbers of the environment's channels
"""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import fields
from typing import Any

from parllel.distributed.messaging.kafka_message import KafkaMessage, MessageType
from parllel.envs.states.env_state import env_state, missing_env_state
from parllel.envs.states.layer_state import NoStateError
from parllel.envs.states.plain_values import freeze, thaw
from parllel.envs.states.random_state import generator_from, generator_state
from parllel.types import State

# A subclass that overrides one of these has physics whose state the default methods do not know.
_OF_PHYSICS = ("apply_actions", "get_global_state", "reset_physics")
_KEPT = ("_timestep", "_compiled_info", "_last_observation", "_last_action")
_OF_MESSAGE = tuple(field.name for field in fields(KafkaMessage))


def whole_state(env: Any) -> State:
    """Return the state of an environment, `np_random` included, for `load_env_state`.

    Raises:
        NoStateError: if a part of the environment has no state methods. Names that part.
    """
    state = env_state(env)
    if state is None:
        raise NoStateError(str(missing_env_state(env)))
    return state


def multi_agent_state(env: Any) -> State:
    """Return the state of a KafkaMultiAgentEnv.

    Raises:
        NoStateError: if its physics, or an agent that overrides `reset`, lacks `state` methods.
    """
    for agent in env.agents.values():
        check_agent(agent)
        if agent.agent_id in env.hosted:
            raise NoStateError(
                f"environment {env.env_id!r}: agent {agent.agent_id!r} runs on a host, which keeps its "
                "state (AgentHost.state)"
            )
    broker = env.kafka_broker
    return {
        "timestep": env.timestep,
        "terminated": env.terminated,
        "truncated": env.truncated,
        "needs_reset": env._needs_reset,
        "leaf_actions": freeze(env._leaf_actions, "leaf_actions"),
        "reset_options": freeze(env.reset_options, "reset_options"),
        "physics": env.physics_state() if _says_physics(env) and env._has_physics else None,
        "agents": {name: agent_state(agent) for name, agent in env.agents.items()},
        "broker": None if broker is None else broker.environment_state(env.env_id),
        # What the policies of trained agents observe in the step that has begun; [] before a reset.
        "trained": {
            agent.agent_id: freeze(agent.policy_inputs(), f"{agent.agent_id}.policy_observation")
            for agent in env._trained
        },
    }


def load_multi_agent_state(env: Any, state: State) -> None:
    """Restore a state returned by `multi_agent_state` for an environment built the same way.

    A state saved in SYNC contains no broker state. When it is loaded in ASYNC, lease, epoch and
    sequence numbers start afresh.

    Raises:
        ValueError: if `state` has another format, or belongs to other agents.
        NoStateError: as in `multi_agent_state`.
    """
    try:
        agents, broker, physics = state["agents"], state["broker"], state["physics"]
        if agents.keys() != env.agents.keys():
            raise ValueError(
                f"environment {env.env_id!r}: expected the state of the agents "
                f"{sorted(env.agents)}, got the state of {sorted(agents)}"
            )
        trained, names = state.get("trained", {}), {agent.agent_id for agent in env._trained}
        if trained.keys() != names:
            raise ValueError(
                f"environment {env.env_id!r}: expected the state of an environment whose trained agents "
                f"are {sorted(names)}, got one with {sorted(trained)}"
            )
        env.timestep, env._needs_reset = state["timestep"], state["needs_reset"]
        env.terminated, env.truncated = state["terminated"], state["truncated"]
        env._leaf_actions = thaw(state["leaf_actions"])
        env.reset_options = thaw(state["reset_options"])
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"environment {env.env_id!r}: not the state of an environment with agents: {error}"
        ) from error
    for name, agent in env.agents.items():
        load_agent_state(agent, agents[name])
    for name, policy_inputs in trained.items():
        env.agents[name].load_policy_inputs(thaw(policy_inputs))
    if _says_physics(env) and physics is not None:
        env.load_physics_state(physics)
        env._has_physics = True
    if env.kafka_broker is not None:
        # First a new epoch: messages of the episode before may still be in transit.
        env.kafka_broker.clear_environment(env.env_id)
        if broker is not None:
            env.kafka_broker.load_environment_state(env.env_id, broker)
        env.resume_step()


def _says_physics(env: Any) -> bool:
    """Check whether the class saves its physics. Raises NoStateError if it needs to and does not."""
    cls = type(env)
    if _overridden(cls, "physics_state"):
        return True
    for name in _OF_PHYSICS:
        if _overridden(cls, name):
            raise NoStateError(
                f"{cls.__name__} has its own physics ({name}) but cannot save its state. Override "
                "physics_state() and load_physics_state(state)."
            )
    return False


def _overridden(cls: type[Any], name: str) -> bool:
    """Check whether a subclass of KafkaMultiAgentEnv overrides a method."""
    original = next(base for base in cls.__mro__ if base.__name__ == "KafkaMultiAgentEnv")
    return getattr(cls, name) is not getattr(original, name)


def check_agent(agent: Any) -> None:
    """Raise NoStateError if an agent overrides `reset` but not `state`."""
    cls = type(agent)
    original = next(base for base in cls.__mro__ if base.__name__ == "Agent")
    if cls.reset is not original.reset and cls.state is original.state:  # type: ignore[attr-defined]
        raise NoStateError(
            f"agent {agent.agent_id!r}: {cls.__name__} overrides reset() but cannot save its "
            "state. Override state() and load_state(state)."
        )


def agent_state(agent: Any) -> State:
    """Return the state common to all agents, with generator and unread messages, plus its own `state()`.

    Raises:
        NoStateError: names agent and attribute, for values that a checkpoint cannot hold.
    """
    try:
        state = _kept(agent)
    except TypeError as error:
        raise NoStateError(f"agent {agent.agent_id!r}: {error}") from error
    state["own"] = agent.state()
    return state


def _kept(agent: Any) -> State:
    state = {name: freeze(getattr(agent, name), name) for name in _KEPT}
    generator = agent._np_random
    state["np_random"] = None if generator is None else generator_state(generator)
    state["mailbox"] = [
        [freeze(_plain(getattr(message, name)), f"mailbox[{i}].{name}") for name in _OF_MESSAGE]
        for i, message in enumerate(agent.mailbox)
    ]
    return state


def load_agent_state(agent: Any, state: State) -> None:
    """Restore a state returned by `agent_state` for an agent built the same way.

    Raises:
        ValueError: if it is not such a state.
    """
    try:
        for name in _KEPT:
            setattr(agent, name, thaw(state[name]))
        saved = state["np_random"]
        agent._np_random = None if saved is None else generator_from(saved)
        mailbox: MutableSequence[KafkaMessage] = agent.mailbox
        # In place: a subscription may hold this list's `append`.
        mailbox.clear()
        for values in state["mailbox"]:
            kept = dict(zip(_OF_MESSAGE, map(thaw, values), strict=True))
            kept["message_type"] = MessageType(kept["message_type"])
            mailbox.append(KafkaMessage(**kept))
        own = state["own"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"agent {agent.agent_id!r}: not the state of an agent: {error}") from error
    # Outside the `try`, so that errors of a subclass reach its author unchanged.
    agent.load_state(own)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, MessageType) else value
