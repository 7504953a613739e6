"""The topics of a hierarchy of agents."""

from __future__ import annotations

from collections.abc import Iterable

from parllel.distributed.messaging.message_type import MessageType
from parllel.distributed.messaging.topic import Topic


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
