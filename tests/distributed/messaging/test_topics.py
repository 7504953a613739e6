from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parllel.distributed.messaging import MessageType, Topic, TopicManager
from parllel.distributed.messaging.topic import Address

# Of few letters, so that names meet that differ by where they are joined alone.
CLOSE = st.text(st.sampled_from("ato_%5F"), min_size=1, max_size=6)
IDS = st.one_of(CLOSE, st.text(st.characters(), min_size=1, max_size=4))
ADDRESSES = st.one_of(
    st.tuples(IDS, st.sampled_from([MessageType.ACTION, MessageType.INFO]), IDS, IDS),
    st.tuples(IDS, st.just(MessageType.BROADCAST), IDS, st.none()),
)


def test_simple_names_read_as_they_are():
    assert TopicManager.action_topic("grid1", "device1", "rollout_0") == (
        "env_rollout_0__grid1_to_device1_action"
    )
    assert TopicManager.info_topic("device1", "grid1") == "env_default__device1_to_grid1_info"
    assert TopicManager.broadcast_topic("grid1") == "env_default__grid1_broadcast"


@given(ADDRESSES, ADDRESSES)
@example(
    ("a", MessageType.ACTION, "_b", "c"),
    ("a_", MessageType.ACTION, "b", "c"),
)
@example(("a", MessageType.INFO, "b_to", "c"), ("a", MessageType.INFO, "b", "to_c"))
@example(("a", MessageType.INFO, "to", "to"), ("a", MessageType.INFO, "to_to", "to"))
@example(("a__b", MessageType.INFO, "c", "d"), ("a", MessageType.INFO, "b__c", "d"))
@example(("a%5F", MessageType.INFO, "c", "d"), ("a_", MessageType.INFO, "c", "d"))
def test_names_are_equal_for_equal_addresses_alone(one, other):
    assert (Topic(*one) == Topic(*other)) == (one == other)
    assert Topic(*one).address == Address(*one)


@given(ADDRESSES)
def test_copies_carry_the_address(address):
    topic = Topic(*address)
    for twin in (copy.copy(topic), copy.deepcopy(topic), pickle.loads(pickle.dumps(topic))):
        assert (twin, twin.address) == (topic, topic.address)


def test_topics_of_an_agent():
    assert TopicManager.agent_topics("b", "a", ["c", "d"], "e") == {
        "subscribe": [
            TopicManager.action_topic("a", "b", "e"),
            TopicManager.info_topic("c", "b", "e"),
            TopicManager.info_topic("d", "b", "e"),
        ],
        "publish": [
            TopicManager.info_topic("b", "a", "e"),
            TopicManager.action_topic("b", "c", "e"),
            TopicManager.action_topic("b", "d", "e"),
        ],
    }
    assert TopicManager.agent_topics("a", None, []) == {"subscribe": [], "publish": []}


@pytest.mark.parametrize("ids", [("", "b", "c"), ("a", "", "c"), ("a", "b", "")])
def test_empty_ids_are_refused(ids):
    with pytest.raises(ValueError, match="expected an id, got ''"):
        TopicManager.action_topic(*ids)


def test_a_broadcast_is_for_all():
    with pytest.raises(ValueError, match="expected None for a broadcast, got 'c'"):
        Topic("a", MessageType.BROADCAST, "b", "c")


@pytest.mark.parametrize("ids", [(3, "b", "c"), ("a", None, "c"), ("a", "b", b"c")])
def test_ids_that_are_no_text_are_refused(ids):
    with pytest.raises(TypeError, match="expected an id that is a str, got"):
        TopicManager.action_topic(*ids)
