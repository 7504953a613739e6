"""What the bytes of a record say.

A record is a list that `parllel.wire` encodes: the fields of `RecordHead` in their order, then a list with
five values for each message: sender, recipient, sequence number, time, payload. An id that cannot be encoded
as text, since it holds half of a surrogate pair, is bytes there. Everything else is the broker's to judge.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from parllel.messaging.kafka_message import KafkaMessage
from parllel.messaging.message_type import MessageType
from parllel.wire import Limits, decode, encode

SCHEMA = 1
# Lists and dicts that a record has around a payload.
INSIDE = 2
# Values for each message.
WIDTH = 5
_KINDS = frozenset(kind.value for kind in MessageType)


class RecordHead(NamedTuple):
    """What the messages of a record have in common.

    Attributes:
        schema: version of this layout.
        run: the name of the run.
        session: 32 random digits of the broker object that sent it.
        environment: its id.
        incarnation: which taker of the id.
        epoch: number of its resets.
        step: of the environment.
        kind: the value of a `MessageType`.
        channel: the name of a channel that is no topic.
    """

    schema: int
    run: str
    session: str
    environment: str
    incarnation: int
    epoch: int
    step: int | None
    kind: str
    channel: str | None


def wire_id(name: str) -> str | bytes:
    """Return an id as something that can be sent."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogatepass")
    return name


def _id(name: str | bytes) -> str:
    if type(name) is bytes:
        return name.decode("utf-8", "surrogatepass")
    if type(name) is not str:
        raise ValueError(f"expected an id, got {name!r}")
    return name


def write_record(head: RecordHead, items: list[Any]) -> bytes:
    """Return the bytes of a record."""
    channel = None if head.channel is None else wire_id(head.channel)
    return encode(
        [*head[:3], wire_id(head.environment), *head[4:8], channel, items],
    )


def open_record(content: bytes, max_bytes: int) -> tuple[RecordHead, list[Any]]:
    """Return the head of a record and the values of its messages, from whoever it may come.

    Raises:
        ValueError: if it is no record, or one of another version; a WireError is one.
    """
    # Every value takes a byte at least, so a record never has more of them.
    tree = decode(content, Limits(nbytes=max_bytes, items=max_bytes))
    if type(tree) is not list or len(tree) != len(RecordHead._fields) + 1:
        raise ValueError("expected a list of ten")
    schema, run, session, environment, incarnation, epoch, step, kind, channel, items = tree
    if type(schema) is not int or schema != SCHEMA:
        raise ValueError(f"expected schema {SCHEMA}, got {schema!r}")
    numbers = type(incarnation) is int and type(epoch) is int
    texts = type(run) is str and type(session) is str and type(kind) is str and kind in _KINDS
    listed = type(items) is list and len(items) % WIDTH == 0
    if not (numbers and texts and listed and (step is None or type(step) is int)):
        raise ValueError("expected the fields of a record")
    if type(environment) is not str:
        environment = _id(environment)
    if channel is not None and type(channel) is not str:
        channel = _id(channel)
    head = RecordHead(schema, run, session, environment, incarnation, epoch, step, kind, channel)
    return head, items


def read_item(items: list[Any], start: int) -> tuple[str, str, int, float, dict[str, Any]]:
    """Return sender, recipient, sequence number, time and payload of the message that begins there.

    Raises:
        ValueError: if they are not of these types.
    """
    sender, recipient, number, timestamp, payload = items[start : start + WIDTH]
    if type(number) is not int or type(payload) is not dict:
        raise ValueError("expected a sequence number and a payload")
    if type(timestamp) is not float and type(timestamp) is not int:
        raise ValueError(f"expected a time, got {timestamp!r}")
    if type(sender) is not str:
        sender = _id(sender)
    if type(recipient) is not str:
        recipient = _id(recipient)
    return sender, recipient, number, timestamp, payload


def read_record(content: bytes, max_bytes: int = 1 << 26) -> list[KafkaMessage]:
    """Return the messages of a record, for those who watch.

    Raises:
        ValueError: if it is no record, or one of another version; a WireError is one.
    """
    head, items = open_record(content, max_bytes)
    messages = []
    for start in range(0, len(items), WIDTH):
        sender, recipient, number, timestamp, payload = read_item(items, start)
        messages.append(
            KafkaMessage(
                *(head.environment, sender, recipient, timestamp, MessageType(head.kind), payload),
                *(head.incarnation, head.epoch, head.step, number, head.schema, head.channel),
            )
        )
    return messages
