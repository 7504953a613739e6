"""A replay buffer that any process of a Ray cluster can use."""

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

# Calls that the actor has at once: one of each worker that waits for room, and those of the trainer.
_MAX_CALLS = 10_000
# Of fragments in one message.
_MAX_BYTES = 4 * 2**20


class RayReplayBuffer(ReplayBufferInterface):
    """A `ReplayBuffer` in an actor, on the node of the process that makes it.

    It travels to other actors as what it is, and leads to the same fragments there. What is in it outlives
    the workers that made it, and the nodes that they ran on.

    Args:
        capacity: most fragments.
        arguments: all others of `ReplayBuffer`.

    Attributes:
        actor: where the fragments are.

    Raises:
        ValueError: as ReplayBuffer.
        WorkerDiedError: by all methods once the actor is dead; what was in it is lost then.
    """

    # Each question whether there is room now keeps the actor's loop busy for about a millisecond.
    add_wait_s = 1.0

    def __init__(self, capacity: int, **arguments: Any) -> None:
        # What it refuses is refused here: an actor whose constructor raises has died, and no more is known.
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
        except BaseException:  # Ctrl-C too: no one has this object to close it
            self.close()
            raise

    def _begin(self, *, owner: bool) -> None:
        self._owner, self._closed, self._full = owner, False, False
        self._tie = RayConnection()
        # A question for fragments that was not waited for, and those that came of it and are left.
        self._unanswered: Any = None
        self._left: list[SampleFragment] = []

    def __reduce__(self) -> tuple[Callable[..., RayReplayBuffer], tuple[Any]]:
        return _elsewhere, (self.actor,)

    def add(self, fragments: Sequence[SampleFragment], timeout_s: float) -> int:
        """Add fragments; see `ReplayBufferInterface.add`. Once this returns, they survive this process.

        Those beyond some megabytes are not sent, whatever room there is.
        """
        if not fragments:
            return 0
        # Sent only to come back, fragments would cost a producer that waits more than one that works.
        if self._full and not self._ask("await_room", timeout_s, wait_s=timeout_s):
            return 0
        packed, size = [], 0
        for fragment in fragments:
            check_kind("RayReplayBuffer: add", fragment, SampleFragment)
            packed.append(PackedFragment.of(fragment))
            size += len(packed[-1].content)
            # Each message is in the object store of its node, which spills to disk what is too much for it.
            if size >= _MAX_BYTES:
                break
        done: int = self._ask("add", packed, timeout_s, wait_s=timeout_s)
        self._full = done < len(packed)
        return done

    def fetch(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Return `n` fragments, or none; see `ReplayBufferInterface.fetch`.

        What comes too late for a call, because the actor did not answer in time or Ctrl-C ended the wait, is
        returned by the next ones.
        """
        if self._unanswered is not None:
            self._left += self._fetched(timeout_s)
        missing = n - len(self._left)
        if missing > 0 or not self._left:
            self._check(f"fetch: {n}")
            # Kept until it is answered: these fragments have left the buffer.
            self._unanswered = self.actor.fetch.remote(missing, timeout_s, version)
            self._left += self._fetched(timeout_s)
        if len(self._left) < n:
            return []
        found, self._left = self._left[:n], self._left[n:]
        return found

    def _fetched(self, timeout_s: float) -> list[SampleFragment]:
        self._check("fetch")
        try:
            packed = answer(self._unanswered, "RayReplayBuffer", "fetch", timeout_s + LATE_S)
        except WorkerTimeoutError:
            raise
        except Exception:
            self._unanswered = None
            raise
        self._unanswered = None
        return [one.unpack() for one in packed]

    def prepared(self) -> int:
        """Return how many fragments can be fetched now."""
        number: int = self._ask("prepared")
        return number + len(self._left)

    def new_version(self, version: int) -> None:
        """Say which version of the weights there is now."""
        self._ask("new_version", version)

    def counts(self) -> dict[str, int]:
        """Return the counters of the ledger: added = accepted + stale + lost + queued."""
        counts: dict[str, int] = self._ask("counts")
        left = len(self._left)
        return {**counts, "accepted": counts["accepted"] - left, "queued": counts["queued"] + left}

    def added(self) -> dict[str, int]:
        """Return by producer how many different fragments have been added, those too old included."""
        added: dict[str, int] = self._ask("added")
        return added

    def close(self) -> None:
        """End the actor, where this was made; elsewhere do nothing. May be called twice."""
        if self._owner and not self._closed:
            self._closed = True
            if self._tie.holds:
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
