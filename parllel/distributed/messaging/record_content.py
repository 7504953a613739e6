"""The binary content of a record.

    Exchange._seal   --- write_record --->  bytes  --- open_record --->  Delivery (this broker's own records)
                                                   --- read_record --->  `parllel messaging tap`

A record is a list encoded by `wire`: the fields of `RecordHead` in order; a flat list with four values per
message (sender, recipient, sequence number, time); and a list of the payloads. An id with a lone surrogate,
which cannot be encoded as text, is sent as bytes. These functions check the layout; whether a record is
current is for the broker to decide.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.msgpack import Encoder

from parllel.distributed.messaging.kafka_message import KafkaMessage, MessageType
from parllel.distributed.wire.limits import Limits
from parllel.distributed.wire.message import decode, encode

SCHEMA = 1
# Nesting depth of a payload within its record, which counts towards the decoder's limit.
INSIDE = 2
# Values per message in the list of ways.
WIDTH = 4
_KINDS = frozenset(kind.value for kind in MessageType)
_encoder = Encoder()


class RecordHead(NamedTuple):
    """The fields shared by all messages of a record.

    Attributes:
        schema: version of this layout.
        run: name of the run.
        session: 32 random hex digits that identify the sending broker object.
        environment: id of the environment.
        lease: number of the environment's lease of its id.
        epoch: number of resets of the lease.
        step: step of the environment.
        kind: the value of a `MessageType`.
        custom_topic: name of a topic given as a plain str; None otherwise.
    """

    schema: int
    run: str
    session: str
    environment: str
    lease: int
    epoch: int
    step: int | None
    kind: str
    custom_topic: str | None


def wire_id(name: str) -> str | bytes:
    """Return an id in the form used in records: text, or bytes for one with a lone surrogate."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogatepass")
    return name


def read_id(name: str | bytes) -> str:
    """Invert `wire_id`.

    Raises:
        ValueError: if it is not an id (UnicodeDecodeError is a ValueError).
    """
    if type(name) is bytes:
        return name.decode("utf-8", "surrogatepass")
    if type(name) is not str:
        raise ValueError(f"expected an id, got {name!r}")
    return name


def write_record(head: RecordHead, ways: list[Any], payloads: list[Raw]) -> bytes:
    """Encode a record.

    ways: sender, recipient, sequence number and time of each message, concatenated.
    payloads: as returned by `encode_part`.
    """
    custom_topic = None if head.custom_topic is None else wire_id(head.custom_topic)
    tree = [*head[:3], wire_id(head.environment), *head[4:8], custom_topic, ways, payloads]
    # Every value is None, int, float, str or bytes, so `encode` need not inspect them one by one.
    return encode(Raw(_encoder.encode(tree)))


@lru_cache(8)
def _limits(max_bytes: int) -> Limits:
    # Every value takes at least one byte, so the size limit bounds the number of values, too.
    return Limits(nbytes=max_bytes, items=max_bytes)


def open_record(content: bytes, max_bytes: int) -> tuple[RecordHead, list[Any], list[Any]]:
    """Decode an untrusted record into head, ways and payloads. Ids keep the form of `wire_id`.

    Raises:
        ValueError: if it is not a record of this version (WireError is a ValueError).
    """
    tree = decode(content, _limits(max_bytes))
    if type(tree) is not list or len(tree) != len(RecordHead._fields) + 2:
        raise ValueError("expected a list of 11 values")
    schema, run, session, environment, lease, epoch, step, kind, custom_topic, ways, payloads = tree
    if type(schema) is not int or schema != SCHEMA:
        raise ValueError(f"expected schema {SCHEMA}, got {schema!r}")
    numbers = type(lease) is int and type(epoch) is int
    texts = type(run) is str and type(session) is str and type(kind) is str and kind in _KINDS
    listed = type(ways) is list and type(payloads) is list
    if not (numbers and texts and listed and (step is None or type(step) is int)):
        raise ValueError("expected the fields of a record, got values of other types")
    if len(ways) != WIDTH * len(payloads):
        raise ValueError(
            f"expected {WIDTH} values for each of {len(payloads)} payloads, got {len(ways)}"
        )
    if type(environment) is not str:
        environment = read_id(environment)
    if custom_topic is not None and type(custom_topic) is not str:
        custom_topic = read_id(custom_topic)
    head = RecordHead(schema, run, session, environment, lease, epoch, step, kind, custom_topic)
    return head, ways, payloads


def read_record(content: bytes, max_bytes: int = 1 << 26) -> list[KafkaMessage]:
    """Decode an untrusted record into messages, for monitoring.

    Raises:
        ValueError: if it is not a record of this version (WireError is a ValueError).
    """
    head, ways, payloads = open_record(content, max_bytes)
    messages = []
    values = iter(ways)
    for sender, recipient, number, timestamp, payload in zip(
        values, values, values, values, payloads, strict=False
    ):
        if (
            type(number) is not int
            or type(timestamp) not in (int, float)
            or type(payload) is not dict
        ):
            raise ValueError("expected a sequence number, a time and a payload")
        messages.append(
            KafkaMessage(
                *(head.environment, read_id(sender), read_id(recipient), timestamp),
                message_type=MessageType(head.kind),
                payload=payload,
                lease=head.lease,
                epoch=head.epoch,
                step=head.step,
                sequence=number,
                schema=head.schema,
                custom_topic=head.custom_topic,
            )
        )
    return messages
