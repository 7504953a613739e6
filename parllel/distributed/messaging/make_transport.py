"""The transport of a broker's mode."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, cast

from parllel.distributed.messaging.memory_transport import MemoryTransport
from parllel.distributed.messaging.transport import Transport

_MODES = ("memory", "kafka")


def make_transport(
    mode: str,
    run: str,
    transport: Transport | None,
    *,
    encoded: bool,
    bootstrap: str | None,
    timeout_s: float,
    kafka: Mapping[str, Any],
) -> Transport:
    """Return the transport that a `KafkaBroker` of these arguments uses.

    Raises:
        ValueError: if the mode is none, or an argument does not go with it.
        TypeError: if the transport is none.
        ImportError: for "kafka" without its client.
    """
    if mode not in _MODES:
        raise ValueError(f"KafkaBroker: mode: expected one of {_MODES}, got {mode!r}")
    if not encoded and (mode == "kafka" or transport is not None):
        raise ValueError(
            "KafkaBroker: encoded=False: references stay in memory; leave out mode='kafka' and transport"
        )
    if transport is not None:
        if not isinstance(transport, Transport):
            raise TypeError(f"KafkaBroker: transport: expected a Transport, got {transport!r}")
        if bootstrap is not None or kafka:
            given = ["bootstrap"] * (bootstrap is not None) + list(kafka)
            raise ValueError(f"KafkaBroker: {given} go with mode='kafka' alone, got a transport")
        return transport
    if mode == "memory":
        if bootstrap is not None or kafka:
            given = ["bootstrap"] * (bootstrap is not None) + list(kafka)
            raise ValueError(f"KafkaBroker: {given} go with mode='kafka' alone, got mode='memory'")
        return MemoryTransport()
    if bootstrap is None:
        raise ValueError(
            "KafkaBroker: mode='kafka': bootstrap: expected 'host:port' of a broker, got None"
        )
    kind = importlib.import_module("parllel.distributed.messaging.kafka").KafkaTransport
    return cast(Transport, kind(bootstrap, run, timeout_s=timeout_s, **kafka))
