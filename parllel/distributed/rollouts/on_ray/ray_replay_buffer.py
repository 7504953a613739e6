"""A replay buffer for all processes of a Ray cluster.

    workers   RayReplayBuffer.add  --- packed fragments --->  BufferActor  --- fetch --->  trainer

Large fragments take another way; see `large_fragments.py`.

Every wait has a time-out, so that the death of the actor or of its node ends it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import ray
from ray.exceptions import ObjectLostError

from parllel.distributed.rollouts.arguments import check_kind
from parllel.distributed.rollouts.fragments.replay_buffer import ReplayBuffer
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.fragments.sample_fragment import (
    FragmentKey,
    PackedFragment,
    SampleFragment,
)
from parllel.distributed.rollouts.on_ray.answers import LATE_S, START_S, answer
from parllel.distributed.rollouts.on_ray.buffer_actor import BufferActor
from parllel.distributed.rollouts.on_ray.large_fragments import (
    SMALL_ARRAY_BYTES,
    ClaimedFragment,
    FragmentContent,
    OfferedFragment,
)
from parllel.distributed.rollouts.on_ray.ray_connection import RayConnection
from parllel.distributed.rollouts.on_ray.start_actor import here, start_actor
from parllel.errors import ClosedError, WorkerTimeoutError

# Concurrent calls of the actor: one for each worker that waits for room, and the trainer's.
_MAX_CALLS = 10_000
# Size of fragments in one message.
_MAX_BYTES = 4 * 2**20
# Of those whose labels alone are in the message: their content takes as much of the object store at once.
_MAX_LABELLED_BYTES = 16 * 2**20
# Below this size, a second message costs more than the copies that it saves.
LARGE_BYTES = 256 * 2**10


class RayReplayBuffer(ReplayBufferInterface):
    """A `ReplayBuffer` in an actor on the node of the process that creates it.

    Can be sent to other actors, where it accesses the same fragments. Fragments outlive the workers that
    produced them, and the nodes these ran on.

    Args:
        capacity: maximum number of fragments.
        large_bytes: size from which fragments of workers stay in Ray's object store until they are
            copied into the trainer's memory, instead of passing through the actor. If there are many,
            the actor copies some into its own memory, so that Ray never writes them to disk.
        arguments: further arguments of `ReplayBuffer`.

    Attributes:
        actor: the actor that holds the fragments.

    Raises:
        ValueError: as in ReplayBuffer.
        WorkerDiedError: raised by all methods once the actor is dead. Its fragments are lost.
    """

    # Each call that asks for room costs the actor's loop about a millisecond.
    add_wait_s = 1.0

    def __init__(self, capacity: int, *, large_bytes: int = LARGE_BYTES, **arguments: Any) -> None:
        # Validates the arguments here: an actor whose constructor raises just dies, without the error.
        ReplayBuffer(capacity, **arguments)
        self.actor: Any = start_actor(
            BufferActor,
            {"capacity": capacity, **arguments},
            _store_bytes(),
            num_cpus=0,
            max_concurrency=_MAX_CALLS,
            scheduling_strategy=here(),
        )
        self._begin(large_bytes, owner=True)
        try:
            self._ask("prepared", wait_s=START_S)
        except BaseException:  # includes Ctrl-C: nobody holds this object to close it
            self.close()
            raise

    def _begin(self, large_bytes: int, *, owner: bool) -> None:
        self._large_bytes = large_bytes
        self._owner, self._closed, self._full = owner, False, False
        # Not pickled, as each process has its own connection.
        self._tie = RayConnection()
        # A `fetch` call whose wait was cut short, and fragments from such calls that were not returned yet.
        # Both are used only by the trainer's thread, and `_full` by the sender's.
        self._unanswered: Any = None
        self._fetched: list[PackedFragment | ClaimedFragment | FragmentContent] = []
        # The actor of this process, from which the buffer can call for the content of fragments.
        self._producer: Any = None
        self._producer_id = ""  # once it is registered
        self._offered: dict[FragmentKey, FragmentContent] = {}

    def __reduce__(self) -> tuple[Callable[..., RayReplayBuffer], tuple[Any, int]]:
        return _elsewhere, (self.actor, self._large_bytes)

    def offer_from_here(self) -> None:
        """Offer large fragments from now on, instead of sending them, in the actor of this process.

        Its method `contents` must return the result of this object's `contents`, while another thread is in
        `add`.
        """
        self._producer = ray.get_runtime_context().current_actor

    def contents(self, keys: Sequence[FragmentKey]) -> list[FragmentContent]:
        """Return the content of fragments that `add` is offering."""
        return [self._offered[key] for key in keys]

    def add(self, fragments: Sequence[SampleFragment], timeout_s: float) -> int:
        """Add fragments; see `ReplayBufferInterface.add`. They then survive the death of this process.

        Sends at most a few megabytes at once, even if there is room for more.
        """
        if not fragments:
            return 0
        # After a refusal, ask for room before sending: fragments sent in vain are expensive.
        if self._full and not self._ask("await_room", timeout_s, wait_s=timeout_s):
            return 0
        packed: list[PackedFragment | OfferedFragment] = []
        sent = offered = 0
        try:
            for fragment in fragments:
                check_kind("RayReplayBuffer: add", fragment, SampleFragment)
                one, nbytes = self._packed(fragment)
                packed.append(one)
                if isinstance(one, OfferedFragment):
                    offered += nbytes
                else:
                    sent += nbytes
                # Each message occupies its node's object store, which spills to disk when it is full.
                if sent >= _MAX_BYTES or offered >= _MAX_LABELLED_BYTES:
                    break
            done: int = self._ask("add", packed, timeout_s, self._producer_id, wait_s=timeout_s)
        finally:
            for one in packed:
                self._offered.pop(one.key, None)
        # Reset after a complete addition: asking for room first costs a message.
        self._full = done < len(packed)
        return done

    def _packed(self, fragment: SampleFragment) -> tuple[PackedFragment | OfferedFragment, int]:
        """Return a fragment to be sent, and its size in bytes."""
        if self._producer is not None:
            small_bytes = min(SMALL_ARRAY_BYTES, self._large_bytes)
            content = FragmentContent.of(fragment, small_bytes)
            label = fragment.key, fragment.oldest_version, fragment.instance_id
            if (nbytes := content.nbytes) >= self._large_bytes:
                self._register()
                self._offered[fragment.key] = content
                return OfferedFragment(*label, nbytes), nbytes
            if not content.arrays:
                return PackedFragment(*label, content.header), nbytes
        packed = PackedFragment.of(fragment)
        return packed, len(packed.content)

    def _register(self) -> None:
        if not self._producer_id:
            producer_id = str(ray.get_runtime_context().get_actor_id())
            self._ask("register_producer", producer_id, self._producer)
            self._producer_id = producer_id

    def fetch(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Return `n` fragments, or none; see `ReplayBufferInterface.fetch`.

        Fragments that arrive too late, after a time-out or Ctrl-C, are returned by the next calls.
        """
        return self._take(n, owned=True) if self._have(n, timeout_s, version) else []

    def borrow(self, n: int, timeout_s: float, version: int | None = None) -> list[SampleFragment]:
        """Like `fetch`, but arrays of large fragments may be read-only views of Ray's object store.

        They occupy the store as long as they exist, so drop them before the next call.
        """
        return self._take(n, owned=False) if self._have(n, timeout_s, version) else []

    def _have(self, n: int, timeout_s: float, version: int | None) -> bool:
        """Fetch what is missing of `n` fragments. Returns False if they don't arrive in time."""
        self._receive(timeout_s)
        missing = n - len(self._fetched)
        # Also for an `n` below 1, which the actor refuses.
        if missing > 0 or n < 1:
            self._check(f"fetch: {n}")
            # Kept until it is answered, because these fragments have already left the buffer.
            n_asked = missing if n > 0 else n
            self._unanswered = self.actor.fetch.remote(n_asked, timeout_s, version)
            self._receive(timeout_s)
        return len(self._fetched) >= n

    def _receive(self, timeout_s: float) -> None:
        """Receive what was fetched. After a time-out or Ctrl-C, the next call continues."""
        if self._unanswered is None:
            return
        self._check("fetch")
        try:
            # Ctrl-C leaves the call pending as well, because it is no Exception.
            found = answer(self._unanswered, "RayReplayBuffer", "fetch", timeout_s + LATE_S)
        except WorkerTimeoutError:
            raise  # the call stays pending, and its fragments are returned later
        except Exception:
            self._unanswered = None  # there will be no answer
            raise
        self._unanswered, self._fetched = None, self._fetched + found

    def _take(self, n: int, *, owned: bool) -> list[SampleFragment]:
        """Return the first `n` of what was fetched. Unless `owned`, they may be views of the object store."""
        self._open(n, in_store=True, owned=owned)
        # Afterwards, because they include what Ray has lost.
        self._open(n, in_store=False, owned=True)
        found = []
        for one in self._fetched[:n]:
            assert not isinstance(one, ClaimedFragment)
            if owned and isinstance(one, FragmentContent):
                one = one.owned()  # a `borrow` that was interrupted leaves views
            found.append(one.unpack())
        del self._fetched[:n]
        return found

    def _open(self, n: int, *, in_store: bool, owned: bool) -> None:
        """Replace claimed fragments among the first `n` by their content.

        in_store: whether those that are in the object store, or those that are in the actor's memory.
        """
        left = [
            (at, one)
            for at, one in enumerate(self._fetched[:n])
            if isinstance(one, ClaimedFragment) and bool(one.reference) == in_store
        ]
        # The actor's answers occupy the object store, too, until they have been copied.
        most = (_MAX_LABELLED_BYTES if owned else math.inf) if in_store else _MAX_BYTES
        while left:
            ends = accumulate(one.nbytes for _, one in left)
            end = max(1, sum(nbytes <= most for nbytes in ends))
            piece, left = left[:end], left[end:]
            claimed = [one for _, one in piece]
            try:
                contents = self._views(claimed) if in_store else self._from_actor(claimed)
            except ObjectLostError:
                # The node of the worker is lost, and Ray with it the way to the copy on this node.
                # The actor still has a view of that.
                for at, one in piece:
                    self._fetched[at] = replace(one, reference=())
                continue
            for (at, _), content in zip(piece, contents, strict=True):
                self._fetched[at] = content.owned() if owned else content
            # Not awaited. Without an answer, the actor is dead, as the next call finds out.
            self.actor.release.remote([one.number for one in claimed])

    def _views(self, claimed: Sequence[ClaimedFragment]) -> list[FragmentContent]:
        """Return views of the object store."""
        self._check("fetch")
        # Fragments of one group share a reference.
        references = list(dict.fromkeys(one.reference[0] for one in claimed))
        groups = dict(zip(references, answer(references, "RayReplayBuffer", "fetch"), strict=True))
        return [groups[one.reference[0]][one.at] for one in claimed]

    def _from_actor(self, claimed: Sequence[ClaimedFragment]) -> list[FragmentContent]:
        contents: list[FragmentContent] = self._ask("contents", [one.number for one in claimed])
        return contents

    def prepared(self) -> int:
        """Return the number of fragments that can be fetched now."""
        number: int = self._ask("prepared")
        return number + len(self._fetched)

    def new_version(self, version: int) -> None:
        """Set the current version of the weights."""
        self._ask("new_version", version)

    def counts(self) -> dict[str, int]:
        """Return the counters of the ledger: added = accepted + stale + lost + queued."""
        counts: dict[str, int] = self._ask("counts")
        # Fragments held here have left the actor but not reached the caller.
        left = len(self._fetched)
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


def _elsewhere(actor: Any, large_bytes: int) -> RayReplayBuffer:
    buffer = RayReplayBuffer.__new__(RayReplayBuffer)
    buffer.actor = actor
    buffer._begin(large_bytes, owner=False)
    return buffer


def _store_bytes() -> float:
    """Return the size of the object store of this process's node."""
    here = ray.get_runtime_context().get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    found = [node for node in nodes if node["NodeID"] == here]
    return float(found[0]["Resources"].get("object_store_memory", 0.0)) if found else 0.0
