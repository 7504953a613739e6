"""Large fragments stay in the object store until they are copied into this process."""

from __future__ import annotations

import os
import signal

import pytest
import ray
import torch
from large_setup import large_fragment, start_maker
from ray.exceptions import ObjectLostError, RayActorError
from ray_setup import gone, stored, wait_until

from parllel.distributed.rollouts.on_ray import RayReplayBuffer, ray_replay_buffer

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("ray_here")]
MIB = 2**20
BALANCED = {"accepted": 0, "stale": 0, "lost": 0, "queued": 0}


def digests(numbers, nbytes, producer="a"):
    return [large_fragment(n, nbytes, producer=producer).digest() for n in numbers]


def finish(maker):
    """Kill the process of a maker, and wait until it has ended."""
    pid = ray.get(maker.pid.remote())
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid), "the end of the maker")


@pytest.mark.parametrize("nbytes", [1000, 3 * MIB // 2])
@pytest.mark.parametrize("large_bytes", [0, MIB])
@pytest.mark.few(2)
def test_what_arrives_is_what_was_added(nbytes, large_bytes):
    with RayReplayBuffer(8, large_bytes=large_bytes) as buffer:
        maker = start_maker(buffer, nbytes)
        assert ray.get(maker.add.remote([0, 1, 2, 3, 4])) == 5
        # Again, as after a lost answer.
        assert ray.get(maker.add.remote([3, 4])) == 2
        assert buffer.counts() == {**BALANCED, "added": 5, "queued": 5}
        found = buffer.fetch(5, 10)
        assert [one.digest() for one in found] == digests(range(5), nbytes)
        assert buffer.counts() == {**BALANCED, "added": 5, "accepted": 5}


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("n", [1, 12])  # with 12, some are in the actor's memory
def test_what_was_fetched_can_change_without_the_next_fetch(n):
    nbytes = 8 * MIB
    with RayReplayBuffer(n, max_reuse=2) as buffer:
        maker = start_maker(buffer, nbytes)
        assert ray.get(maker.add.remote(list(range(n)))) == n
        for _ in range(2):
            found = buffer.fetch(n, 30)
            assert [one.digest() for one in found] == digests(range(n), nbytes)
            for one in found:
                # PyTorch writes to read-only arrays as well.
                torch.from_numpy(one.env.observation["image"]).zero_()
        assert buffer.prepared() == 0


def test_the_maker_dies_after_the_acknowledgement():
    nbytes, n = 5 * MIB, 14
    with RayReplayBuffer(n) as buffer:
        maker = start_maker(buffer, nbytes)
        assert ray.get(maker.add.remote(list(range(n)))) == n
        finish(maker)
        found = buffer.fetch(n, 30)
        assert [one.digest() for one in found] == digests(range(n), nbytes)


def test_a_maker_that_dies_when_it_is_asked_leaves_its_room_to_others():
    with RayReplayBuffer(2) as buffer:
        dying = start_maker(buffer, MIB, "dying", dies=True)
        with pytest.raises(RayActorError):
            ray.get(dying.add.remote([0, 1]))
        maker = start_maker(buffer, MIB)
        assert ray.get(maker.add.remote([0, 1, 2], 0.5)) == 2
        assert buffer.counts() == {**BALANCED, "added": 2, "queued": 2}
        assert buffer.added() == {"a": 2}
        assert [one.producer for one in buffer.fetch(2, 10)] == ["a", "a"]
        assert ray.get(maker.add.remote([2])) == 1


def test_nothing_is_written_to_disk():
    # More than the object store holds.
    nbytes, n = 12 * MIB, 24
    _, spilled = stored()
    with RayReplayBuffer(n) as buffer:
        makers = [start_maker(buffer, nbytes, name) for name in "ab"]
        adding = [maker.add.remote(list(range(n))) for maker in makers]
        found = buffer.fetch(n, 60)
        assert len({one.key for one in found}) == n
        # The others take the room.
        wait_until(lambda: buffer.prepared() == n, "the others")
        found += buffer.fetch(n, 60)
        assert ray.get(adding) == [n, n]
        for name in "ab":
            of_one = [one.digest() for one in found if one.producer == name]
            assert of_one == digests(range(n), nbytes, name)
        wait_until(lambda: stored()[0] < 20 * MIB, "an object store without fragments")
    assert stored()[1] == spilled


def interrupt(patch, views_before):
    """Raise KeyboardInterrupt instead of views of the object store, after so many times."""
    real, times = RayReplayBuffer._views, []

    def interrupted(self, claimed):
        if len(times) == views_before:
            raise KeyboardInterrupt
        times.append(len(claimed))
        return real(self, claimed)

    patch.setattr(RayReplayBuffer, "_views", interrupted)


@pytest.mark.parametrize("first", ["fetch", "borrow"])
def test_a_fetch_that_was_interrupted_goes_on(monkeypatch, first):
    nbytes = 9 * MIB  # more than two do not fit into a piece
    before, _ = stored()
    with RayReplayBuffer(4) as buffer:
        maker = start_maker(buffer, nbytes)
        assert ray.get(maker.add.remote([0, 1, 2, 3])) == 4
        with monkeypatch.context() as patch:
            interrupt(patch, views_before=1 if first == "fetch" else 0)
            with pytest.raises(KeyboardInterrupt):
                getattr(buffer, first)(4, 10)
        assert buffer.prepared() == 4
        assert buffer.counts() == {**BALANCED, "added": 4, "queued": 4}
        with pytest.raises(ValueError, match=r"expected 1 to 4 .* got 0"):
            buffer.fetch(0, 10)
        found = buffer.fetch(4, 10)
        assert [one.digest() for one in found] == digests(range(4), nbytes)
        # They are copies, so nothing stays in the store.
        wait_until(lambda: stored()[0] < before + MIB, "an object store without fragments")
        assert buffer.counts() == {**BALANCED, "added": 4, "accepted": 4}


def test_what_is_borrowed_stays_in_the_store_while_it_is_used():
    nbytes, n = 8 * MIB, 4
    before, _ = stored()
    with RayReplayBuffer(n, max_reuse=2) as buffer:
        maker = start_maker(buffer, nbytes)
        assert ray.get(maker.add.remote(list(range(n)))) == n
        for _ in range(2):
            found = buffer.borrow(n, 30)
        # Neither the actor nor the worker has them any more.
        wait_until(lambda: not ray.get(buffer.actor.counts.remote())["queued"], "the last use")
        finish(maker)
        assert [one.digest() for one in found] == digests(range(n), nbytes)
        assert stored()[0] >= before + n * nbytes
        del found
        wait_until(lambda: stored()[0] < before + MIB, "an object store without fragments")


def test_some_of_what_came_together_can_be_fetched():
    nbytes = MIB
    with RayReplayBuffer(6) as buffer:
        maker = start_maker(buffer, nbytes)
        assert ray.get(maker.add.remote(list(range(6)))) == 6
        found = buffer.fetch(1, 10) + buffer.borrow(2, 10) + buffer.fetch(3, 10)
        assert [one.digest() for one in found] == digests(range(6), nbytes)
        assert buffer.counts() == {**BALANCED, "added": 6, "accepted": 6}


@pytest.mark.parametrize("way", ["fetch", "borrow"])
def test_content_that_ray_has_lost_comes_from_the_actor(monkeypatch, way):
    lost = []

    def lose(references, *arguments):
        if isinstance(references, list):
            lost.extend(references)
            raise ObjectLostError("00", "", "")
        return real(references, *arguments)

    real = ray_replay_buffer.answer
    with RayReplayBuffer(4) as buffer:
        maker = start_maker(buffer, 3 * MIB)
        assert ray.get(maker.add.remote([0, 1])) == 2
        monkeypatch.setattr(ray_replay_buffer, "answer", lose)
        found = getattr(buffer, way)(2, 10)
        assert lost
        assert [one.digest() for one in found] == digests(range(2), 3 * MIB)
