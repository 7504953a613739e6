"""What the bytes of a record say.

A record is a list that `wire` can decode: the fields of `RecordHead` in their order; a list with four values
for each message, which are sender, recipient, sequence number and time; and a list of the payloads. An id
that cannot be encoded as text, since it holds half of a surrogate pair, is bytes there. Everything else is
the broker's to judge.
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
# Lists and dicts that a record has around a payload.
INSIDE = 2
# Values for each message, beside its payload.
WIDTH = 4
_KINDS = frozenset(kind.value for kind in MessageType)
_encoder = Encoder()


class RecordHead(NamedTuple):
    """What the messages of a record have in common.

    Attributes:
        schema: version of this layout.
        run: the name of the run.
        session: 32 random digits of the broker object that sent it.
        environment: its id.
        lease: number of the environment's lease of its id.
        epoch: number of its resets.
        step: of the environment.
        kind: the value of a `MessageType`.
        custom_topic: a topic given as plain text; None otherwise.
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
    """Return an id as something that can be sent."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogatepass")
    return name


def read_id(name: str | bytes) -> str:
    """Return the id that `wire_id` made something of.

    Raises:
        ValueError: if it is none; a UnicodeDecodeError is one.
    """
    if type(name) is bytes:
        return name.decode("utf-8", "surrogatepass")
    if type(name) is not str:
        raise ValueError(f"expected an id, got {name!r}")
    return name


def write_record(head: RecordHead, ways: list[Any], payloads: list[Raw]) -> bytes:
    """Return the bytes of a record.

    ways: sender, recipient, sequence number and time of each message, one after the other.
    payloads: as `encode_part` returns them.
    """
    custom_topic = None if head.custom_topic is None else wire_id(head.custom_topic)
    tree = [*head[:3], wire_id(head.environment), *head[4:8], custom_topic, ways, payloads]
    # All of it is None, int, float, str or bytes, which `encode` would only look at one by one.
    return encode(Raw(_encoder.encode(tree)))


@lru_cache(8)
def _limits(max_bytes: int) -> Limits:
    # Every value takes a byte at least, so a record never has more of them.
    return Limits(nbytes=max_bytes, items=max_bytes)


def open_record(content: bytes, max_bytes: int) -> tuple[RecordHead, list[Any], list[Any]]:
    """Return the head, ways and payloads of a record, from whoever it may come; ids in ways as `wire_id`s.

    Raises:
        ValueError: if it is no record, or one of another version; a WireError is one.
    """
    tree = decode(content, _limits(max_bytes))
    if type(tree) is not list or len(tree) != len(RecordHead._fields) + 2:
        raise ValueError("expected a list of eleven")
    schema, run, session, environment, lease, epoch, step, kind, custom_topic, ways, payloads = tree
    if type(schema) is not int or schema != SCHEMA:
        raise ValueError(f"expected schema {SCHEMA}, got {schema!r}")
    numbers = type(lease) is int and type(epoch) is int
    texts = type(run) is str and type(session) is str and type(kind) is str and kind in _KINDS
    listed = type(ways) is list and type(payloads) is list
    if not (numbers and texts and listed and (step is None or type(step) is int)):
        raise ValueError("expected the fields of a record")
    if len(ways) != WIDTH * len(payloads):
        raise ValueError(f"expected a way for each of {len(payloads)} payloads")
    if type(environment) is not str:
        environment = read_id(environment)
    if custom_topic is not None and type(custom_topic) is not str:
        custom_topic = read_id(custom_topic)
    head = RecordHead(schema, run, session, environment, lease, epoch, step, kind, custom_topic)
    return head, ways, payloads


def read_record(content: bytes, max_bytes: int = 1 << 26) -> list[KafkaMessage]:
    """Return the messages of a record, for those who watch.

    Raises:
        ValueError: if it is no record, or one of another version; a WireError is one.
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
