"""What can go wrong between agents and their broker."""

from __future__ import annotations

from parllel.errors import ParllelError


class MessagingError(ParllelError):
    """Base class of the errors of brokers.

    Attributes:
        environment: the id of the environment that it is about, None if it is about all.
        step: the number of its step, None outside of steps.
    """

    def __init__(
        self, what: str, *, environment: str | None = None, step: int | None = None
    ) -> None:
        super().__init__(what)
        self.environment = environment
        self.step = step


class MissingMessageError(MessagingError, TimeoutError):
    """A message had not come by the deadline."""


class SequenceGapError(MessagingError):
    """Messages of a channel are lost; a reset of the environment begins anew."""


class DuplicateActionError(MessagingError):
    """A second action, unlike the first, was sent over a channel in one step."""


class QueueOverflowError(MessagingError):
    """As many messages of a channel as its queue holds have not been consumed."""


class MessageTooLargeError(MessagingError, ValueError):
    """A message has more bytes than the transport takes; it was not sent."""


class BrokerUnavailableError(MessagingError, ConnectionError):
    """The broker could not be reached, or did not answer by the deadline."""


class BrokerRefusedError(MessagingError):
    """The broker lacks something that is needed, or does not permit it."""
