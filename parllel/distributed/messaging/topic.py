"""Topics: names that carry an address, and those of a hierarchy of agents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from parllel.distributed.messaging.kafka_message import MessageType


class Address(NamedTuple):
    """Between whom the messages of a topic go. A broadcast has no recipient."""

    environment: str
    kind: MessageType
    sender: str
    recipient: str | None


class Topic(str):
    """The readable name of an address, which it carries; the name is never parsed.

    Different addresses have different names. `TopicManager` makes topics.

    Raises:
        TypeError: if an id is no text.
        ValueError: if an id is empty, or a broadcast has a recipient.

    Attributes:
        address: between whom its messages go.
    """

    address: Address
    __slots__ = ("address",)

    def __new__(
        cls, environment: str, kind: MessageType, sender: str, recipient: str | None = None
    ) -> Topic:
        """Make the name."""
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
        """Make a copy from the address, in another process too."""
        return Topic, tuple(self.address)


def check_id(what: str, name: object) -> str:
    """Return the id of an environment or agent.

    Raises:
        TypeError: if it is no text.
        ValueError: if it is empty.
    """
    if not isinstance(name, str):
        raise TypeError(f"{what}: expected an id that is a str, got {name!r}")
    if not name:
        raise ValueError(f"{what}: expected an id, got ''")
    return name


def shown_id(name: str) -> str:
    """Return an id as it stands in names of topics: no two are equal there.

    Names are joined by "__" and "_to_". An id that could be taken for more than one has its underscores
    escaped, so that in any name the first empty part, and the first "to" that has a part on either side, are
    the ones that join.
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
    """Make the topics between agents of one environment."""

    @staticmethod
    def action_topic(parent_id: str, child_id: str, env_id: str = "default") -> Topic:
        """Return the topic by which a parent sends actions to a child.

        Raises:
            TypeError: if an id is no text.
            ValueError: if an id is empty.
        """
        return Topic(env_id, MessageType.ACTION, parent_id, child_id)

    @staticmethod
    def info_topic(child_id: str, parent_id: str, env_id: str = "default") -> Topic:
        """Return the topic by which a child sends information to its parent. Raises as `action_topic`."""
        return Topic(env_id, MessageType.INFO, child_id, parent_id)

    @staticmethod
    def broadcast_topic(agent_id: str, env_id: str = "default") -> Topic:
        """Return the topic by which an agent speaks to all that listen. Raises as `action_topic`."""
        return Topic(env_id, MessageType.BROADCAST, agent_id)

    @staticmethod
    def agent_topics(
        agent_id: str,
        parent_id: str | None,
        subordinate_ids: Iterable[str],
        env_id: str = "default",
    ) -> dict[str, list[Topic]]:
        """Return what an agent reads ("subscribe") and writes ("publish"). Raises as `action_topic`."""
        action, info = TopicManager.action_topic, TopicManager.info_topic
        subordinates = list(subordinate_ids)
        from_parent = [] if parent_id is None else [action(parent_id, agent_id, env_id)]
        to_parent = [] if parent_id is None else [info(agent_id, parent_id, env_id)]
        return {
            "subscribe": from_parent + [info(child, agent_id, env_id) for child in subordinates],
            "publish": to_parent + [action(agent_id, child, env_id) for child in subordinates],
        }
