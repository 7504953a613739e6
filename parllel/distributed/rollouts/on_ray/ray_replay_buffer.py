"""A replay buffer for all processes of a Ray cluster.

    workers   RayReplayBuffer.add  --- packed fragments --->  BufferActor  --- fetch --->  trainer

Every wait has a time-out, so that the death of the actor or of its node ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ray

from parllel.distributed.rollouts.arguments import check_kind
from parllel.distributed.rollouts.fragments.replay_buffer import ReplayBuffer
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.fragments.sample_fragment import PackedFragment, SampleFragment
from parllel.distributed.rollouts.on_ray.answers import LATE_S, START_S, answer
from parllel.distributed.rollouts.on_ray.buffer_actor import BufferActor
from parllel.distributed.rollouts.on_ray.ray_connection import RayConnection
from parllel.distributed.rollouts.on_ray.start_actor import here, start_actor
from parllel.errors import ClosedError, WorkerTimeoutError

# Concurrent calls of the actor: one for each worker that waits for room, and the trainer's.
_MAX_CALLS = 10_000
# Size of fragments in one message.
_MAX_BYTES = 4 * 2**20


class RayReplayBuffer(ReplayBufferInterface):
    """A `ReplayBuffer` in an actor on the node of the process that creates it.

    Can be sent to other actors, where it accesses the same fragments. Fragments outlive the workers that
    produced them, and the nodes these ran on.

    Args:
        capacity: maximum number of fragments.
        arguments: further arguments of `ReplayBuffer`.

    Attributes:
        actor: the actor that holds the fragments.

    Raises:
        ValueError: as in ReplayBuffer.
        WorkerDiedError: raised by all methods once the actor is dead. Its fragments are lost.
    """

    # Each call that asks for room costs the actor's loop about a millisecond.
    add_wait_s = 1.0

    def __init__(self, capacity: int, **arguments: Any) -> None:
        # Validates the arguments here: an actor whose constructor raises just dies, without the error.
        ReplayBuffer(capacity, **arguments)
        self.actor: Any = start_actor(
            BufferActor,
            {"capacity": capacity, **arguments},
            num_cpus=0,
            max_concurrency=_MAX_CALLS,
            scheduling_strategy=here(),
        )
        self._begin(owner=True)
        try:
            self._ask("prepared", wait_s=START_S)
        except BaseException:  # includes Ctrl-C: nobody holds this object to close it
            self.close()
            raise

    def _begin(self, *, owner: bool) -> None:
        self._owner, self._closed, self._full = owner, False, False
        # Not pickled, as each process has its own connection.
        self._tie = RayConnection()
        # A `fetch` call whose wait was cut short, and fragments from it that were not returned yet.
        # Both are used only by the trainer's thread, and `_full` by the sender's.
        self._unanswered: Any = None
        self._left: list[SampleFragment] = []

    def __reduce__(self) -> tuple[Callable[..., RayReplayBuffer], tuple[Any]]:
        return _elsewhere, (self.actor,)

    def add(self, fragments: Sequence[SampleFragment], timeout_s: float) -> int:
        """Add fragments; see `ReplayBufferInterface.add`. They then survive the death of this process.

        Sends at most a few megabytes at once, even if there is room for more.
        """
        if not fragments:
            return 0
        # After a refusal, ask for room before sending: fragments sent in vain are expensive.
        if self._full and not self._ask("await_room", timeout_s, wait_s=timeout_s):
            return 0
        packed, size = [], 0
        for fragment in fragments:
            check_kind("RayReplayBuffer: add", fragment, SampleFragment)
            packed.append(PackedFragment.of(fragment))
            size += len(packed[-1].content)
            # Each message occupies its node's object store, which spills to disk when it is full.
            if size >= _MAX_BYTES:
                break
        done: int = self._ask("add", packed, timeout_s, wait_s=timeout_s)
        # Reset after a complete addition: asking for room first costs a message.
        self._full = done < len(packed)
        return done

    def fetch(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Return `n` fragments, or none; see `ReplayBufferInterface.fetch`.

        Fragments that arrive too late, after a time-out or Ctrl-C, are returned by the next calls.
        """
        if self._unanswered is not None:
            self._left += self._fetched(timeout_s)
        missing = n - len(self._left)
        # With nothing left, also for an `n` below 1, which the actor refuses.
        if missing > 0 or not self._left:
            self._check(f"fetch: {n}")
            # Kept until it is answered, because these fragments have already left the buffer.
            self._unanswered = self.actor.fetch.remote(missing, timeout_s, version)
            self._left += self._fetched(timeout_s)
        if len(self._left) < n:
            return []
        found, self._left = self._left[:n], self._left[n:]
        return found

    def _fetched(self, timeout_s: float) -> list[SampleFragment]:
        self._check("fetch")
        try:
            # Ctrl-C leaves the call pending as well, because it is no Exception.
            packed = answer(self._unanswered, "RayReplayBuffer", "fetch", timeout_s + LATE_S)
        except WorkerTimeoutError:
            raise  # the call stays pending, and its fragments are returned later
        except Exception:
            self._unanswered = None  # there will be no answer
            raise
        self._unanswered = None
        return [fragment.unpack() for fragment in packed]

    def prepared(self) -> int:
        """Return the number of fragments that can be fetched now."""
        number: int = self._ask("prepared")
        return number + len(self._left)

    def new_version(self, version: int) -> None:
        """Set the current version of the weights."""
        self._ask("new_version", version)

    def counts(self) -> dict[str, int]:
        """Return the counters of the ledger: added = accepted + stale + lost + queued."""
        counts: dict[str, int] = self._ask("counts")
        # Fragments held here have left the actor but not reached the caller.
        left = len(self._left)
        return {**counts, "accepted": counts["accepted"] - left, "queued": counts["queued"] + left}

    def added(self) -> dict[str, int]:
        """Return the number of different fragments added by each producer, including stale ones."""
        added: dict[str, int] = self._ask("added")
        return added

    def close(self) -> None:
        """End the actor if this object created it. Does nothing in copies. Idempotent."""
        if self._owner and not self._closed:
            self._closed = True
            if self._tie.holds:
                # Calls that wait in the actor end with WorkerDiedError, at once.
                ray.kill(self.actor)

    def _ask(self, method: str, *arguments: Any, wait_s: float = 0.0) -> Any:
        self._check(method)
        reference = getattr(self.actor, method).remote(*arguments)
        return answer(reference, "RayReplayBuffer", method, wait_s + LATE_S)

    def _check(self, doing: str) -> None:
        if self._closed:
            raise ClosedError(f"RayReplayBuffer: {doing}: the buffer is closed")
        self._tie.check(f"RayReplayBuffer: {doing}")


def _elsewhere(actor: Any) -> RayReplayBuffer:
    buffer = RayReplayBuffer.__new__(RayReplayBuffer)
    buffer.actor = actor
    buffer._begin(owner=False)
    return buffer
