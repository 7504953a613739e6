"""Settings of the Kafka clients."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Room for a record's key and header, which the client counts as part of the message.
_HEADROOM = 4096
# Settings this package depends on: a user's value could silently break ordering or exactly-once delivery.
_OURS = frozenset(
    {
        *("bootstrap.servers", "enable.idempotence", "acks", "linger.ms", "message.timeout.ms"),
        *("delivery.timeout.ms", "message.max.bytes", "enable.auto.commit", "group.id"),
        *("auto.offset.reset", "enable.partition.eof", "logger", "error_cb", "on_delivery"),
        *("delivery.report.only.error", "transactional.id", "max.in.flight", "dr_cb"),
        *("max.in.flight.requests.per.connection", "enable.auto.offset.store"),
    }
)
_ADDRESS = re.compile(r"(?:[A-Za-z]+://)?(?:\[[0-9A-Fa-f:.%]+\]|[^\s,:/@\[\]]+):(\d{1,5})")


@dataclass(frozen=True)
class ClientSettings:
    """Address of a broker, time-out, and settings of librdkafka.

    Attributes:
        bootstrap: "host:port" of the broker. Several addresses are separated by commas.
        timeout_s: seconds after which the broker counts as unavailable.
        max_bytes: maximum size of one record with its key.
        config: librdkafka settings, such as SASL and TLS, keyed by name. Settings that would affect
            ordering or delivery are refused. Messages never show the values, which may be
            passwords.

    Raises:
        ValueError: for an invalid value.
        TypeError: for a value of the wrong type.
    """

    bootstrap: str
    timeout_s: float = 10.0
    max_bytes: int = 1_000_000
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._check_bootstrap()
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, (int, float)):
            raise TypeError(f"timeout_s: expected seconds, got {self.timeout_s!r}")
        if not 0 < self.timeout_s <= 3600 or not math.isfinite(self.timeout_s):
            raise ValueError(f"timeout_s: expected 0 to 3600 seconds, got {self.timeout_s!r}")
        if isinstance(self.max_bytes, bool) or not isinstance(self.max_bytes, int):
            raise TypeError(f"max_bytes: expected a number of bytes, got {self.max_bytes!r}")
        if not 1000 <= self.max_bytes <= 500_000_000:
            raise ValueError(f"max_bytes: expected 1,000 to 500,000,000, got {self.max_bytes}")
        for name in self.config:
            if not isinstance(name, str):
                raise TypeError(
                    f"config: expected names of librdkafka's settings, got {type(name).__name__}"
                )
            if name in _OURS:
                raise ValueError(
                    f"config: {name!r} is set by parllel.distributed.messaging; remove it"
                )

    def _check_bootstrap(self) -> None:
        if not isinstance(self.bootstrap, str):
            raise TypeError(f'bootstrap: expected "host:port", got {type(self.bootstrap).__name__}')
        for server in map(str.strip, self.bootstrap.split(",")):
            found = _ADDRESS.fullmatch(server)
            if found is None or not 0 < int(found[1]) < 65536:
                raise ValueError(
                    f'bootstrap: expected "host:port", several separated by commas, got {server!r}'
                )

    def addresses(self) -> list[tuple[str, int]]:
        """Return host and port of each bootstrap server."""
        found = []
        for server in self.bootstrap.split(","):
            host, _, port = server.strip().rpartition("://")[2].rpartition(":")
            found.append((host.strip("[]"), int(port)))
        return found

    def for_client(self) -> dict[str, Any]:
        """Return the settings common to all clients.

        The delay between reconnection attempts is short, because a step waits for the connection.
        An unanswered request is abandoned well before the deadline, because connections can die
        silently.
        """
        # `metadata.recovery.strategy=none` would save the second that librdkafka takes to recover after a
        # cut, but 2.16 crashes with it when a broker restarts empty.
        request_ms = int(min(max(1000 * self.timeout_s / 2, 1000), 60_000))
        return {
            "socket.nagle.disable": True,
            "socket.keepalive.enable": True,
            "socket.timeout.ms": request_ms,
            "socket.connection.setup.timeout.ms": max(request_ms, 1000),
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 250,
            "retry.backoff.ms": 50,
            "topic.metadata.refresh.fast.interval.ms": 100,
            **self.config,
            "bootstrap.servers": self.bootstrap,
        }

    def for_producer(self) -> dict[str, Any]:
        """Return producer settings: records are sent immediately, in order, and exactly once."""
        return {
            **self.for_client(),
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,  # a hop is complete when it is sent: waiting for more records only adds latency
            # A second longer than `timeout_s`, so that this package reports the time-out before the client.
            "message.timeout.ms": int(1000 * self.timeout_s) + 1000,
            "message.max.bytes": self.max_bytes + _HEADROOM,
            "queue.buffering.max.messages": 1_000_000,
            # A broker applies its size limit to whole batches, not to single records.
            "batch.size": min(self.max_bytes + _HEADROOM, 1_000_000),
        }

    def for_consumer(self) -> dict[str, Any]:
        """Return settings for a consumer with assigned partitions and no stored offsets.

        Some brokers do not wake a pending fetch when records arrive, so a fetch waits for only 1
        ms. If your broker does wake fetches, increase `fetch.wait.max.ms` in `config`.
        """
        size = max(self.max_bytes + _HEADROOM, 1 << 20)
        return {
            "fetch.wait.max.ms": 1,
            "fetch.error.backoff.ms": 50,
            **self.for_client(),
            "group.id": "parllel",  # required by the client; no group is ever joined
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": False,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            "max.partition.fetch.bytes": size,
            "fetch.max.bytes": max(size, 50 << 20),
            "receive.message.max.bytes": max(size, 50 << 20) + (1 << 20),
        }
