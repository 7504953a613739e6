"""Exceptions of agents and their broker."""

from __future__ import annotations

from parllel.errors import ParllelError


class MessagingError(ParllelError):
    """Base class of broker errors.

    Attributes:
        environment: id of the affected environment. None if all environments are affected.
        step: step number of the environment. None outside a step.
        agent: id of an agent that an `AgentHost` runs. None if the error concerns no such agent.
        host: name of that host. None if it has none.
    """

    def __init__(
        self,
        what: str,
        *,
        environment: str | None = None,
        step: int | None = None,
        agent: str | None = None,
        host: str | None = None,
    ) -> None:
        super().__init__(what)
        self.environment = environment
        self.step = step
        self.agent = agent
        self.host = host


class MissingMessageError(MessagingError, TimeoutError):
    """A message did not arrive by the deadline."""


class HostError(MessagingError):
    """Agents have no host, or two, or one that fails or has left; or a host has no environment side."""


class SequenceGapError(MessagingError):
    """Messages of a channel were lost. Resetting the environment recovers from it."""


class DuplicateActionError(MessagingError):
    """A second, different action was sent over a channel in the same step."""


class QueueOverflowError(MessagingError):
    """The queue of a channel is full."""


class MessageTooLargeError(MessagingError, ValueError):
    """A message exceeds the transport's size limit; it was not sent."""


class BrokerUnavailableError(MessagingError, ConnectionError):
    """The broker cannot be reached, or did not answer by the deadline."""


class BrokerRefusedError(MessagingError):
    """The broker lacks a required feature, or denies permission."""
