"""The replay buffer of a run on Ray, in a process of its own.

    RolloutWorkerWrapper  -- add -->  BufferActor (a ReplayBuffer)  <-- fetch, new_version --  trainer

One event loop does all of it, so no lock is needed between two `await`. What changes the entries wakes all
that look at them, and these look again. Workers wait for room in the order of their calls, and only the
first of them looks: room for eight fragments must not make a thousand workers send theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

from parllel.distributed.rollouts.fragments.replay_buffer import MAX_PRODUCERS, ReplayBuffer
from parllel.distributed.rollouts.fragments.sample_fragment import PackedFragment
from parllel.distributed.rollouts.on_ray.raylet_watch import end_with_raylet

# A worker that was given room is sending its fragments: the next in line waits this long for them.
_PROMISED_S = 2e-3
# Under which those that came longest ago are counted together.
EARLIER = "earlier producers"


class BufferActor:
    """A ReplayBuffer of packed fragments.

    Args:
        arguments: of the ReplayBuffer.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        end_with_raylet()
        self._buffer = ReplayBuffer(**arguments)
        self._changed = asyncio.Event()
        self._first = asyncio.Lock()  # held by the first in line
        self._added_by: dict[str, int] = {}  # by producer; the one of the last fragment is the last

    async def add(self, packed: Sequence[PackedFragment], timeout_s: float) -> int:
        """Add fragments, as `ReplayBufferInterface.add`."""
        deadline, done = monotonic() + timeout_s, 0
        while True:
            before = self._buffer.counts()["added"]
            # Without a wait in there, which would hold up everyone.
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
        """Wait until a fragment more would fit; return False if the time was up before."""
        deadline = monotonic() + timeout_s
        if self._first.locked():
            try:
                await asyncio.wait_for(self._first.acquire(), timeout_s)
            except asyncio.TimeoutError:
                return False
        else:
            await self._first.acquire()  # which waits for nothing, so that 0 seconds are enough
        pause_s = 0.0
        try:
            while self._buffer.prepared() >= self._buffer.capacity:
                if not await self._wait(deadline):
                    return False
            pause_s = _PROMISED_S
            return True
        finally:
            asyncio.get_running_loop().call_later(pause_s, self._first.release)

    async def fetch(self, n: int, timeout_s: float, version: int | None) -> list[PackedFragment]:
        """Return fragments, as `ReplayBufferInterface.fetch`."""
        deadline = monotonic() + timeout_s
        if version is not None:
            await self.new_version(version)
        while True:
            found: list[Any] = self._buffer.fetch(n, 0.0)
            if found:
                self._wake()
            if found or not await self._wait(deadline):
                return found

    async def new_version(self, version: int) -> None:
        """Drop what has become too old."""
        before = self._buffer.version
        self._buffer.new_version(version)
        if self._buffer.version > before:
            self._wake()

    async def prepared(self) -> int:
        """Return how many fragments can be fetched now."""
        return self._buffer.prepared()

    async def counts(self) -> dict[str, int]:
        """Return the ledger."""
        return self._buffer.counts()

    async def added(self) -> dict[str, int]:
        """Return by producer how many different fragments have been added, those too old included.

        Of very many producers, those that came longest ago are one, `EARLIER`.
        """
        return dict(self._added_by)

    async def close(self) -> None:
        """Drop all fragments, and let calls that wait raise ClosedError."""
        self._buffer.close()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait(self, deadline: float) -> bool:
        """Wait for a change; return False once the time is up."""
        left_s = deadline - monotonic()
        if left_s <= 0:
            return False
        try:
            await asyncio.wait_for(self._changed.wait(), left_s)
        except asyncio.TimeoutError:
            return False
        return True
