"""The actor's event loop by itself: nothing here starts Ray."""

from __future__ import annotations

import asyncio

import pytest
from fragments import make_fragment

from parllel.distributed.rollouts.fragments.sample_fragment import PackedFragment

LONG_S = 60.0


@pytest.fixture
def make_actor(monkeypatch):
    """Return what makes an actor, without the thread that ends its process with its node."""
    from parllel.distributed.rollouts.on_ray import buffer_actor

    monkeypatch.setattr(buffer_actor, "end_with_raylet", lambda: None)
    return lambda capacity, **options: buffer_actor.BufferActor(
        {"capacity": capacity, **options}, 2**20
    )


def packed(sequence, producer="a", version=0):
    return PackedFragment.of(make_fragment(sequence, producer=producer, version=version))


def test_workers_hear_of_room_one_after_the_other(make_actor):
    async def run():
        actor, told = make_actor(1), []

        async def wait(name):
            assert await actor.await_room(LONG_S)
            told.append(name)

        assert await actor.add([packed(0)], 0.0) == 1
        waiting = [asyncio.create_task(wait(name)) for name in range(3)]
        await asyncio.sleep(0.05)
        assert told == []
        for number in range(3):
            assert await actor.fetch(1, 0.0, None)
            await waiting[number]
            # Its fragment takes the room, before the next in line hears of it.
            assert await actor.add([packed(number + 1)], 0.0) == 1
            await asyncio.sleep(0.05)
            assert told == list(range(number + 1))

    asyncio.run(run())


def test_one_that_gives_up_leaves_its_place_in_the_line(make_actor):
    async def run():
        actor = make_actor(1)
        assert await actor.await_room(0.0)
        assert await actor.add([packed(0)], 0.0) == 1
        first = asyncio.create_task(actor.await_room(LONG_S))
        await asyncio.sleep(0.01)
        assert not await actor.await_room(0.02)
        assert not await actor.await_room(0.0)
        second = asyncio.create_task(actor.await_room(LONG_S))
        assert await actor.fetch(1, 0.0, None)
        assert await first
        assert await second  # nothing came of the room that the first was told of
        assert await actor.await_room(0.5)

    asyncio.run(run())


def test_a_newer_version_makes_room_for_who_waits(make_actor):
    async def run():
        actor = make_actor(1, max_staleness=0)
        assert await actor.add([packed(0)], 0.0) == 1
        waiting = asyncio.create_task(actor.await_room(LONG_S))
        fetching = asyncio.create_task(actor.fetch(1, LONG_S, 1))
        assert await waiting
        assert await actor.add([packed(0, "b", version=1)], 0.0) == 1
        (found,) = await fetching
        assert found.key[0] == "b"
        assert (await actor.counts())["stale"] == 1

    asyncio.run(run())


def test_producers_that_came_longest_ago_are_counted_together(make_actor, monkeypatch):
    from parllel.distributed.rollouts.on_ray import buffer_actor

    monkeypatch.setattr(buffer_actor, "MAX_PRODUCERS", 3)

    async def run():
        actor = make_actor(16)
        for start in range(4):
            await actor.add([packed(start, "running")], 0.0)
            await actor.add([packed(n, f"start {start}") for n in range(2)], 0.0)
        return await actor.added()

    added = asyncio.run(run())
    assert added == {buffer_actor.EARLIER: 6, "running": 4, "start 3": 2}
