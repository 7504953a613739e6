"""Topics: readable names that carry an address, and the topics of a hierarchy of agents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from parllel.distributed.messaging.kafka_message import MessageType


class Address(NamedTuple):
    """Sender and recipient of a topic's messages. A broadcast has no recipient."""

    environment: str
    kind: MessageType
    sender: str
    recipient: str | None


class Topic(str):
    """The readable name of an address. Carries the address, so the name is never parsed.

    Different addresses have different names. Create topics with `TopicManager`.

    Raises:
        TypeError: if an id is not a string.
        ValueError: if an id is empty, or a broadcast has a recipient.

    Attributes:
        address: environment, kind, sender and recipient.
    """

    address: Address
    __slots__ = ("address",)

    def __new__(
        cls, environment: str, kind: MessageType, sender: str, recipient: str | None = None
    ) -> Topic:
        """Build the name from the address."""
        names = [
            shown_id(check_id("environment", environment)),
            shown_id(check_id("sender", sender)),
        ]
        if kind is not MessageType.BROADCAST:
            names.append(shown_id(check_id("recipient", recipient)))
        elif recipient is not None:
            raise ValueError(f"recipient: expected None for a broadcast, got {recipient!r}")
        topic = super().__new__(cls, f"env_{names[0]}__{'_to_'.join(names[1:])}_{kind.value}")
        topic.address = Address(environment, kind, sender, recipient)
        return topic

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the address rather than the name."""
        return Topic, tuple(self.address)


def check_id(what: str, name: object) -> str:
    """Validate the id of an environment or agent, and return it.

    Raises:
        TypeError: if it is not a string.
        ValueError: if it is empty.
    """
    if not isinstance(name, str):
        raise TypeError(f"{what}: expected an id that is a str, got {name!r}")
    if not name:
        raise ValueError(f"{what}: expected an id, got ''")
    return name


def shown_id(name: str) -> str:
    """Escape an id for topic names, so that different ids stay different.

    Names are joined by "__" and "_to_". An id that contains a joint has its underscores escaped, so in any
    name the first empty part, and the first "to" with a part on either side, are the joints.
    """
    parts = name.split("_")
    escaped = "%_" if len(parts) > 1 and not {"", "to"}.isdisjoint(parts) else "%"
    return "".join(
        letter
        if letter.isprintable() and letter not in escaped
        else "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))
        for letter in name
    )


class TopicManager:
    """Create the topics between agents of one environment."""

    @staticmethod
    def action_topic(parent_id: str, child_id: str, env_id: str = "default") -> Topic:
        """Return the topic for actions from a parent to a child.

        Raises:
            TypeError: if an id is not a string.
            ValueError: if an id is empty.
        """
        return Topic(env_id, MessageType.ACTION, parent_id, child_id)

    @staticmethod
    def info_topic(child_id: str, parent_id: str, env_id: str = "default") -> Topic:
        """Return the topic for infos from a child to its parent. Raises as `action_topic`."""
        return Topic(env_id, MessageType.INFO, child_id, parent_id)

    @staticmethod
    def broadcast_topic(agent_id: str, env_id: str = "default") -> Topic:
        """Return the topic for messages from an agent to all its subscribers. Raises as `action_topic`."""
        return Topic(env_id, MessageType.BROADCAST, agent_id)

    @staticmethod
    def agent_topics(
        agent_id: str,
        parent_id: str | None,
        subordinate_ids: Iterable[str],
        env_id: str = "default",
    ) -> dict[str, list[Topic]]:
        """Return the topics an agent reads ("subscribe") and writes ("publish"). Raises as `action_topic`."""
        action, info = TopicManager.action_topic, TopicManager.info_topic
        subordinates = list(subordinate_ids)
        from_parent = [] if parent_id is None else [action(parent_id, agent_id, env_id)]
        to_parent = [] if parent_id is None else [info(agent_id, parent_id, env_id)]
        return {
            "subscribe": from_parent + [info(child, agent_id, env_id) for child in subordinates],
            "publish": to_parent + [action(agent_id, child, env_id) for child in subordinates],
        }
