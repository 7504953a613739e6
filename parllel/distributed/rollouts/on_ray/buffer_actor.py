"""The actor that holds the replay buffer of a run on Ray.

    RolloutWorkerWrapper  -- add -->  BufferActor (a ReplayBuffer)  <-- fetch, new_version --  trainer

One event loop runs all methods, so no lock is needed between two `await`s. Each change of the entries wakes
all waiting calls, which check again. Workers wait for room in the order of their calls, and only the first in
line checks: room for eight fragments must not make a thousand workers send theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

from parllel.distributed.rollouts.fragments.replay_buffer import MAX_PRODUCERS, ReplayBuffer
from parllel.distributed.rollouts.fragments.sample_fragment import PackedFragment
from parllel.distributed.rollouts.on_ray.raylet_watch import end_with_raylet

# Pause before the next in line is served, in which the worker that was promised room sends its fragments.
_PROMISED_S = 2e-3
# Name under which the producers heard of longest ago are counted together.
EARLIER = "earlier producers"


class BufferActor:
    """A ReplayBuffer of packed fragments.

    Args:
        arguments: arguments of the ReplayBuffer.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        end_with_raylet()
        self._buffer = ReplayBuffer(**arguments)
        self._changed = asyncio.Event()
        self._first = asyncio.Lock()  # held by the first in line
        self._added_by: dict[str, int] = {}  # by producer, the most recent one last

    async def add(self, packed: Sequence[PackedFragment], timeout_s: float) -> int:
        """Add fragments, like `ReplayBufferInterface.add`."""
        deadline, done = monotonic() + timeout_s, 0
        while True:
            # No `await` before the second count, so the difference is due to this call.
            before = self._buffer.counts()["added"]
            # Only what has not been handled yet; a repeated fragment counts as handled.
            # With a time-out of 0, because a wait inside would block the event loop.
            now = self._buffer.add(packed[done:], 0.0)  # type: ignore[arg-type]
            if added := self._buffer.counts()["added"] - before:
                self._count(packed[done].key[0], added)
                self._wake()
            done += now
            if done == len(packed) or not await self._wait(deadline):
                return done

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
            while self._buffer.prepared() >= self._buffer.capacity:
                if not await self._wait(deadline):
                    return False
            pause_s = _PROMISED_S
            return True
        finally:
            # Also after a time-out, or nobody else would ever be first.
            asyncio.get_running_loop().call_later(pause_s, self._first.release)

    async def fetch(self, n: int, timeout_s: float, version: int | None) -> list[PackedFragment]:
        """Return fragments, like `ReplayBufferInterface.fetch`."""
        deadline = monotonic() + timeout_s
        # Before the first look, so that no fragment is returned that is too old for the caller.
        if version is not None:
            await self.new_version(version)
        while True:
            found: list[Any] = self._buffer.fetch(n, 0.0)
            if found:
                self._wake()  # there is room
            if found or not await self._wait(deadline):
                return found

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
