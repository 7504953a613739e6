"""The lease of an environment id: its number, epoch and step."""

from __future__ import annotations

from parllel.distributed.messaging.errors import MessagingError


class Lease:
    """One environment's right to an id, from `join` to `leave`.

    Attributes:
        environment: the id.
        key: the id as bytes, unique to it.
        number: number of the lease, never reused.
        joined: True once `join` took the id; False while only published messages created it.
        left: True once the id was released.
        epoch: number of resets.
        step: the number last passed to `begin_step` since the reset.
        fault: the first loss detected since the reset.
    """

    __slots__ = ("environment", "epoch", "fault", "joined", "key", "left", "number", "step")

    def __init__(self, environment: str, number: int) -> None:
        self.environment = environment
        # An id may be any str, so also one with a lone surrogate.
        self.key = environment.encode("utf-8", "surrogatepass")
        self.number = number
        self.joined = False
        # `left` and `epoch` are also read without the exchange's lock, by `Watchers._call`. A
        # callback may thus see the last message of an epoch that ends at the same moment.
        self.left = False
        self.epoch = 0
        self.step: int | None = None
        self.fault: MessagingError | None = None

    def begin_epoch(self) -> None:
        """Count a reset, and clear step and fault."""
        self.epoch += 1
        self.step = None
        self.fault = None
