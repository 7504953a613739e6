"""The lease of an environment's id: its number, resets and steps."""

from __future__ import annotations

from parllel.distributed.messaging.errors import MessagingError


class Lease:
    """The right of one environment to an id, from `join` to `leave`.

    Attributes:
        environment: the id.
        key: the id as bytes; those of different ids differ.
        number: of the lease, never used again.
        joined: whether `join` took the id, rather than a message that was published before.
        left: whether the id was given up.
        epoch: number of resets.
        step: the number that `begin_step` was given last since the reset.
        fault: what was found to be lost since the reset.
    """

    __slots__ = ("environment", "epoch", "fault", "joined", "key", "left", "number", "step")

    def __init__(self, environment: str, number: int) -> None:
        self.environment = environment
        # Half of a surrogate pair is a legal part of an id too.
        self.key = environment.encode("utf-8", "surrogatepass")
        self.number = number
        self.joined = False
        self.left = False
        self.epoch = 0
        self.step: int | None = None
        self.fault: MessagingError | None = None

    def begin_epoch(self) -> None:
        """Note a reset."""
        self.epoch += 1
        self.step = None
        self.fault = None
