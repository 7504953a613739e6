"""The ways to step the same environments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.messaging.workload import N_ENVS, ROOT, SCALAR, make_envs
from parllel.distributed.messaging import (
    ExecutionMode,
    KafkaBroker,
    MemoryTransport,
    Record,
    TopicManager,
    Transport,
)
from parllel.distributed.messaging.delayed_transport import DelayedTransport

WAIT_S = 30.0
ALONE, ENVIRONMENT = "alone", "environment"


class Steps:
    """Vector steps of environments, as work.

    Args:
        broker: closed with the environments; None steps them by calls.
        value: the payload.
        hosted: as `make_envs` takes it.
    """

    def __init__(
        self,
        broker: KafkaBroker | None,
        value: Any = SCALAR,
        n: int = N_ENVS,
        hosted: Sequence[str] = (),
    ) -> None:
        mode = ExecutionMode.SYNC if broker is None else ExecutionMode.ASYNC
        self.envs = make_envs(broker, n, mode, hosted)
        self.broker = broker
        self._actions = [{ROOT: value}] * n

    def __call__(self) -> int:
        """Step all environments once."""
        self.envs.step(self._actions)
        return 1

    def close(self) -> None:
        """Close the environments, and the broker if there is one."""
        self.envs.close()
        if self.broker is not None:
            self.broker.close()


class Resets(Steps):
    """Resets of one environment among others, as work."""

    def __call__(self) -> int:
        """Reset the one in the middle."""
        self.envs.reset([self.envs.num_envs // 2])
        return 1


class CountingTransport(Transport):
    """Memory, with counts of what passes through.

    Attributes:
        records, bytes: since they were set to 0.
    """

    def __init__(self) -> None:
        self._inner = MemoryTransport()
        self.records = self.bytes = 0

    def send_hop(self, records: Sequence[Record], deadline: float) -> None:
        """Count, and hand on."""
        self.records += len(records)
        self.bytes += sum(len(record.content) for record in records)
        self._inner.send_hop(records, deadline)

    def receive(self, timeout_s: float) -> list[Record]:
        """Return what has come."""
        return self._inner.receive(timeout_s)

    def close(self) -> None:
        """Give up everything."""
        self._inner.close()


def references() -> KafkaBroker:
    """Return a broker in memory that passes references."""
    return KafkaBroker(encoded=False)


def delayed(delay_s: float) -> KafkaBroker:
    """Return a broker in memory whose records arrive later."""
    return KafkaBroker(transport=DelayedTransport(MemoryTransport(), delay_s), timeout_s=WAIT_S)


class Singly:
    """Messages over a broker, each received before the next is sent, as work.

    Args:
        broker: closed with this.
    """

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        broker.join(ALONE)
        self._edge = broker.channel(TopicManager.action_topic(ENVIRONMENT, ROOT, ALONE), ALONE)
        self._step = 0

    def __call__(self) -> int:
        """Send and receive one message."""
        self.broker.begin_step([ALONE], [self._step])
        self._step += 1
        self._edge.put({"action": SCALAR})
        self.broker.await_messages([self._edge], time.monotonic() + WAIT_S)
        self._edge.take()
        return 1

    def close(self) -> None:
        """Close the broker."""
        self.broker.close()
