"""What a checkpoint keeps of one agent, between two steps."""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import fields
from typing import Any

from parllel.distributed.messaging.kafka_message import KafkaMessage
from parllel.distributed.messaging.message_type import MessageType
from parllel.envs.states.layer_state import NoStateError
from parllel.envs.states.plain_values import freeze, thaw
from parllel.envs.states.random_state import generator_from, generator_state
from parllel.types import State

_KEPT = ("_timestep", "_compiled_info", "_last_observation", "_last_action")
_OF_MESSAGE = tuple(field.name for field in fields(KafkaMessage))


def agent_state(agent: Any) -> State:
    """Return what every agent keeps, its generator and unread messages included, and its own `state()`.

    Raises:
        NoStateError: naming the agent and the attribute, for values that no checkpoint can hold.
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
    """Take back what `agent_state` returned, of an agent made alike.

    Raises:
        ValueError: if it is no such state.
    """
    try:
        for name in _KEPT:
            setattr(agent, name, thaw(state[name]))
        saved = state["np_random"]
        agent._np_random = None if saved is None else generator_from(saved)
        mailbox: MutableSequence[KafkaMessage] = agent.mailbox
        # In place: a subscription may hold its `append`.
        mailbox.clear()
        for values in state["mailbox"]:
            kept = dict(zip(_OF_MESSAGE, map(thaw, values), strict=True))
            kept["message_type"] = MessageType(kept["message_type"])
            mailbox.append(KafkaMessage(**kept))
        own = state["own"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"agent {agent.agent_id!r}: not the state of an agent: {error}") from error
    # Outside, as what a subclass raises is its own.
    agent.load_state(own)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, MessageType) else value
