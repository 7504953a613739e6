from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from fragments import make_fragment, observation, step_record

from parllel.buffers import NamedTuple
from parllel.distributed.rollouts import FragmentCutter, ReplayBuffer
from parllel.distributed.rollouts.fragments.sample_fragment import PackedFragment


def test_versions_and_sizes():
    cutter = FragmentCutter(3, producer="w")
    for number, version in enumerate([5, 4, 6]):
        fragment = cutter.add_step(step_record(2, number, version=version))
    assert fragment.key == ("w", 2, 0, 0)
    assert (fragment.length, fragment.n_steps) == (3, 3)
    assert (fragment.oldest_version, fragment.newest_version) == (4, 6)
    # Observations of 16 bytes, four of them; per step an action, a value, a reward, five flags and a version.
    assert fragment.nbytes == 4 * 16 + 3 * (8 + 4 + 4 + 5 + 8)
    assert repr(fragment) == (
        "SampleFragment(3 steps of 'w', environment 2, epoch 0, sequence 0, versions 4 to 6)"
    )


def test_a_fragment_follows_the_one_before():
    first, second, third = (make_fragment(number) for number in range(3))
    assert second.follows(first)
    assert third.follows(second)
    assert not third.follows(first)
    assert not first.follows(first)
    for other in ({"producer": "b"}, {"environment": 1}, {"epoch": 1}):
        assert not make_fragment(1, **other).follows(first)


def test_the_digest_tells_fragments_apart():
    fragment = make_fragment()
    assert fragment.digest() == make_fragment().digest()
    assert fragment.digest() == replace(fragment, producer="other").digest()
    env = fragment.env
    others = [
        replace(fragment, environment=1),
        replace(fragment, epoch=1),
        replace(fragment, sequence=1),
        replace(fragment, env=env._replace(version=env.version + 1)),
        replace(fragment, env=env._replace(reward=env.reward.astype(np.float64))),
        replace(fragment, env=env._replace(reward=env.reward.reshape(1, 2))),
        replace(fragment, env=env._replace(more=env.reward)),
        replace(fragment, next_observation=observation(0, 0)),
        replace(fragment, final_observations={1: observation(0, 0)}),
    ]
    assert len({one.digest() for one in [fragment, *others]}) == 1 + len(others)


def test_the_digest_knows_neither_the_order_of_fields_nor_the_layout():
    fragment = make_fragment()
    env = NamedTuple(**dict(reversed(fragment.env._asdict().items())))
    spread = np.repeat(fragment.env.reward, 2)[::2]
    assert not spread.flags.c_contiguous
    other = replace(fragment, env=env._replace(reward=spread))
    assert other.digest() == fragment.digest()


def test_a_fragment_travels_by_pickle():
    fragment = make_fragment(3, version=2)
    arrived = pickle.loads(pickle.dumps(fragment))
    assert arrived.key == fragment.key
    assert arrived.digest() == fragment.digest()


def test_its_arrays_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        make_fragment().env.reward[0] = 1


def test_without_a_step_there_is_no_fragment():
    fragment = make_fragment()
    empty = fragment.env._replace(version=fragment.env.version[:0])
    with pytest.raises(ValueError, match="at least one step, got none"):
        replace(fragment, env=empty)


# ---------------------------------------------------------------------- packed


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
        with pytest.raises(ValueError, match="expected the fragments of only one producer"):
            buffer.add([second], 0.0)


def test_an_error_does_not_show_what_is_packed():
    assert "content" not in repr(PackedFragment.of(make_fragment()))
