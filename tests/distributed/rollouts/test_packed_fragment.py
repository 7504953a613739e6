from __future__ import annotations

from dataclasses import replace

import pytest
from fragments import make_fragment

from parllel.distributed.rollouts import ReplayBuffer
from parllel.distributed.rollouts.fragments.sample_fragment import PackedFragment


def test_a_buffer_keeps_packed_fragments_as_it_keeps_others():
    fragments = [make_fragment(sequence=n) for n in range(3)]
    packed = [PackedFragment.of(fragment) for fragment in fragments]
    with ReplayBuffer(capacity=4) as buffer:
        assert buffer.add(packed[:2], 0.0) == 2
        assert buffer.add(packed, 0.0) == 3
        assert buffer.duplicates == 2
        found = [one.unpack() for one in buffer.fetch(3, 0.0)]
    assert [one.digest() for one in found] == [one.digest() for one in fragments]


def test_a_buffer_refuses_packed_fragments_of_a_second_producer_with_the_same_name():
    first, second = (
        PackedFragment.of(replace(make_fragment(sequence=n), instance_id=who))
        for n, who in enumerate("ab")
    )
    with ReplayBuffer(capacity=4) as buffer:
        buffer.add([first], 0.0)
        with pytest.raises(ValueError, match="expected fragments of one producer"):
            buffer.add([second], 0.0)


def test_an_error_does_not_show_what_is_packed():
    assert "content" not in repr(PackedFragment.of(make_fragment()))
