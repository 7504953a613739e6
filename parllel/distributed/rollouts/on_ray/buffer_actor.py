"""The actor that holds the replay buffer of a run on Ray.

    RolloutWorkerWrapper  -- add -->  BufferActor (a ReplayBuffer)  <-- fetch, new_version --  trainer

One event loop runs all methods, so no lock is needed between two `await`s. Each change of the entries wakes
all waiting calls, which check again. Workers wait for room in the order of their calls, and only the first in
line checks: room for eight fragments must not make a thousand workers send theirs.

Of large fragments, `add` receives the labels, and calls the worker for the content once there is room. What
one call returns is one object, because each object costs Ray's processes about a millisecond in all.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from time import monotonic
from typing import Any, TypeAlias

from parllel.distributed.rollouts.fragments.replay_buffer import MAX_PRODUCERS, ReplayBuffer
from parllel.distributed.rollouts.fragments.sample_fragment import PackedFragment
from parllel.distributed.rollouts.on_ray.large_fragments import (
    ClaimedFragment,
    FragmentContent,
    HeldFragment,
    HeldGroup,
    OfferedFragment,
)
from parllel.distributed.rollouts.on_ray.raylet_watch import end_with_raylet

_Fragment: TypeAlias = PackedFragment | OfferedFragment | HeldFragment

# Pause before the next in line is served, in which the worker that was promised room sends its fragments.
_PROMISED_S = 2e-3
# Time-out for the content of fragments: a worker that is stopped must not keep the room promised to it.
_CONTENT_S = 20.0
# Parts of the node's object store: contents of stored fragments, which the trainer may have borrowed when as
# many others are stored, and contents that are arriving. The rest is for weights and messages.
_STORED_SHARE, _ARRIVING_SHARE = 0.25, 0.25
# Name under which the producers heard of longest ago are counted together.
EARLIER = "earlier producers"


class BufferActor:
    """A ReplayBuffer of packed and of large fragments.

    Args:
        arguments: arguments of the ReplayBuffer.
        store_bytes: size of the node's object store.
    """

    def __init__(self, arguments: dict[str, Any], store_bytes: float) -> None:
        end_with_raylet()
        self._buffer = ReplayBuffer(**arguments)
        self._producers: dict[str, Any] = {}  # actors that offer fragments, by id
        self._promised = 0  # fragments whose content is arriving
        self._arriving_bytes = 0
        self._max_arriving_bytes = store_bytes * _ARRIVING_SHARE
        self._max_stored_bytes = store_bytes * _STORED_SHARE
        # Those in the object store of which this process still has a fragment.
        self._in_store: weakref.WeakSet[HeldGroup] = weakref.WeakSet()
        self._claimed: dict[int, HeldFragment] = {}
        self._n_claimed = 0
        self._changed = asyncio.Event()
        self._first = asyncio.Lock()  # held by the first in line
        self._added_by: dict[str, int] = {}  # by producer, the most recent one last

    async def add(
        self, fragments: Sequence[_Fragment], timeout_s: float, producer_id: str = ""
    ) -> int:
        """Add fragments, like `ReplayBufferInterface.add`.

        producer_id: actor registered by `register_producer`, which has the content of offered fragments.
        """
        deadline, done = monotonic() + timeout_s, 0
        fragments = list(fragments)
        while True:
            ready = len(fragments)
            if producer_id:
                await self._collect(fragments, done, producer_id, deadline)
                ready = self._end_of_ready(fragments, done)
            # No `await` before the second count, so the difference is due to this call.
            before = self._buffer.counts()["added"]
            # Only what has not been handled yet; a repeated fragment counts as handled.
            # With a time-out of 0, because a wait inside would block the event loop.
            now = self._buffer.add(fragments[done:ready], 0.0)  # type: ignore[arg-type]
            if added := self._buffer.counts()["added"] - before:
                self._count(fragments[done].key[0], added)
                self._wake()
            done += now
            if done == len(fragments) or not await self._wait(deadline):
                return done

    # ------------------------------------------------------------------ the content of large fragments

    async def register_producer(self, producer_id: str, actor: Any) -> None:
        """Register an actor whose method `contents` returns the content of the fragments that it offers."""
        self._producers[producer_id] = actor
        if len(self._producers) > MAX_PRODUCERS:
            del self._producers[next(iter(self._producers))]

    async def _collect(
        self, fragments: list[_Fragment], done: int, producer_id: str, deadline: float
    ) -> None:
        """Replace offered fragments, for which there is room, by their content."""
        chosen: dict[int, OfferedFragment] = {}
        room = self._buffer.capacity - self._buffer.prepared() - self._promised
        for at in range(done, len(fragments)):
            fragment = fragments[at]
            # What would be dropped needs neither room nor content.
            if not self._buffer.needs(fragment):
                continue
            if room <= 0:
                break
            room -= 1
            if isinstance(fragment, OfferedFragment):
                chosen[at] = fragment
        if not chosen:
            return
        nbytes = sum(fragment.nbytes for fragment in chosen.values())
        # Promised to this call, or the content of others would arrive for the same room.
        self._promised += len(chosen)
        try:
            # At least one call, however large the fragments are.
            while self._arriving_bytes and self._arriving_bytes + nbytes > self._max_arriving_bytes:
                if not await self._wait(deadline):
                    return
            self._arriving_bytes += nbytes
            try:
                held = await self._held(list(chosen.values()), producer_id)
            except asyncio.TimeoutError:
                return  # like missing room: the worker offers them again
            finally:
                self._arriving_bytes -= nbytes
            for at, fragment in zip(chosen, held, strict=True):
                fragments[at] = fragment
        finally:
            # The caller adds the fragments before any other call can run.
            self._promised -= len(chosen)
            self._wake()

    async def _held(
        self, offered: Sequence[OfferedFragment], producer_id: str
    ) -> list[HeldFragment]:
        """Call a worker for the content of fragments."""
        producer = self._producers[producer_id]
        reference = producer.contents.remote([fragment.key for fragment in offered])
        # Awaiting it copies it to this node, so it outlives the worker's.
        contents: list[FragmentContent] = await asyncio.wait_for(reference, _CONTENT_S)
        nbytes = sum(content.nbytes for content in contents)
        group = HeldGroup(reference, nbytes)
        fits = sum(held.nbytes for held in self._in_store) + nbytes <= self._max_stored_bytes
        if fits:
            self._in_store.add(group)
        else:
            # Ray would spill to files instead, which is slower, and does not end with the run.
            contents = [content.owned() for content in contents]
        kept = group if fits else None
        return [
            HeldFragment(label.key, label.oldest_version, label.instance_id, content, kept, at)
            for at, (label, content) in enumerate(zip(offered, contents, strict=True))
        ]

    def _end_of_ready(self, fragments: Sequence[_Fragment], done: int) -> int:
        """Return the end of the fragments from `done` on that can be added without further content."""
        while done < len(fragments):
            fragment = fragments[done]
            if isinstance(fragment, OfferedFragment) and self._buffer.needs(fragment):
                break
            done += 1
        return done

    def _claim(self, fragment: PackedFragment | HeldFragment) -> PackedFragment | ClaimedFragment:
        if isinstance(fragment, PackedFragment):
            return fragment
        self._n_claimed += 1
        self._claimed[self._n_claimed] = fragment
        return ClaimedFragment(
            fragment.key,
            fragment.oldest_version,
            fragment.instance_id,
            self._n_claimed,
            fragment.content.nbytes,
            () if fragment.group is None else (fragment.group.reference,),
            fragment.at,
        )

    async def contents(self, numbers: Sequence[int]) -> list[FragmentContent]:
        """Return the content of claimed fragments."""
        return [self._claimed[number].content for number in numbers]

    async def release(self, numbers: Sequence[int]) -> None:
        """Forget claimed fragments, whose content has been copied."""
        for number in numbers:
            del self._claimed[number]

    # ------------------------------------------------------------------ counts, room and fetching

    def _count(self, producer: str, added: int) -> None:
        counts = self._added_by
        counts[producer] = counts.pop(producer, 0) + added
        if len(counts) > MAX_PRODUCERS:
            oldest = next(name for name in counts if name != EARLIER)
            counts[EARLIER] = counts.pop(EARLIER, 0) + counts.pop(oldest)

    async def await_room(self, timeout_s: float) -> bool:
        """Wait until there is room for a fragment. Returns False on time-out."""
        deadline = monotonic() + timeout_s
        if self._first.locked():
            try:
                await asyncio.wait_for(self._first.acquire(), timeout_s)
            except asyncio.TimeoutError:
                return False
        else:
            # Works with a time-out of 0. Waits only just after a release, behind calls that were in line and
            # end by their own time-outs, a second for senders.
            await self._first.acquire()
        pause_s = 0.0
        try:
            while self._buffer.prepared() + self._promised >= self._buffer.capacity:
                if not await self._wait(deadline):
                    return False
            pause_s = _PROMISED_S
            return True
        finally:
            # Also after a time-out, or nobody else would ever be first.
            asyncio.get_running_loop().call_later(pause_s, self._first.release)

    async def fetch(
        self, n: int, timeout_s: float, version: int | None
    ) -> list[PackedFragment | ClaimedFragment]:
        """Return fragments, like `ReplayBufferInterface.fetch`.

        The caller releases the claimed ones among them.
        """
        deadline = monotonic() + timeout_s
        # Before the first look, so that no fragment is returned that is too old for the caller.
        if version is not None:
            await self.new_version(version)
        while True:
            found: list[Any] = self._buffer.fetch(n, 0.0)
            if found:
                self._wake()  # there is room
            if found or not await self._wait(deadline):
                return [self._claim(fragment) for fragment in found]

    async def new_version(self, version: int) -> None:
        """Drop fragments that have become too old."""
        before = self._buffer.version
        self._buffer.new_version(version)
        if self._buffer.version > before:
            self._wake()

    async def prepared(self) -> int:
        """Return the number of fragments that can be fetched now."""
        return self._buffer.prepared()

    async def counts(self) -> dict[str, int]:
        """Return the ledger."""
        return self._buffer.counts()

    async def added(self) -> dict[str, int]:
        """Return the number of different fragments added by each producer, including stale ones.

        Beyond a limit, the producers that were last active longest ago are counted together as
        `EARLIER`.
        """
        return dict(self._added_by)

    async def close(self) -> None:
        """Drop all fragments. Waiting calls raise ClosedError."""
        self._buffer.close()
        # Closing the buffer wakes only threads, and the calls here wait for the event.
        self._wake()

    def _wake(self) -> None:
        # A new event for later waiters, since one that is set would never block again.
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait(self, deadline: float) -> bool:
        """Wait for a change. Returns False on time-out."""
        left_s = deadline - monotonic()
        if left_s <= 0:
            return False
        try:
            # No `await` since the caller looked, so no change can be missed.
            await asyncio.wait_for(self._changed.wait(), left_s)
        except asyncio.TimeoutError:
            return False
        return True
