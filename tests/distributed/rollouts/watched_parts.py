"""Senders, storages and environments that tell a model of a worker what they do."""

from __future__ import annotations

from typing import Any

from rollout_model import oldest_of

from parllel.distributed.rollouts import (
    EnvWorker,
    FragmentSender,
    ReplayBuffer,
    ReplayBufferInterface,
)


class MishapError(Exception):
    """What handlers and storages of the test raise."""


class WatchedSender(FragmentSender):
    """Keeps what is put, and ends runs that wait for room in vain."""

    def __init__(self, producer: Any, *args: Any, **options: Any) -> None:
        self.producer = producer
        self.put_so_far: list[Any] = []
        self.known: dict[Any, Any] = {}
        self.digests: dict[Any, str] = {}
        self.dropped = 0
        super().__init__(*args, **options)

    def put(self, *fragments: Any) -> None:
        # First, as they may be fetched before this returns.
        for fragment in fragments:
            self.producer.storage.announced[fragment.key] = self.producer.newest
            self.known[fragment.key] = fragment
            self.digests[fragment.key] = fragment.digest()
        super().put(*fragments)
        self.put_so_far += fragments

    def count_stale(self) -> None:
        self.dropped += 1
        super().count_stale()

    def await_room(self, timeout_s: float) -> bool:
        room = super().await_room(timeout_s)
        if timeout_s > 0 and not room:
            self.producer.wait_in_vain()
        return room


class WatchedStorage(ReplayBufferInterface):
    """One sender's door to a buffer, which can be slow, forget to answer, or fail.

    Attributes:
        accepted: keys that the sender was told of.
        refused: keys for which it was told of an error.
        forgotten: keys of which it should have been told.
        mishaps: what becomes of the next calls of `add`: "slow", "forget", "fail".
    """

    def __init__(self, buffer: Any, producer: Any) -> None:
        self.buffer, self.producer = buffer, producer
        self.forgotten: set[Any] = set()
        self.accepted: list[Any] = []
        self.refused: list[Any] = []
        self.mishaps: list[str] = []
        # The newest version that the sender must have known of when it took a fragment up.
        self.announced: dict[Any, int] = {}
        self._since = 0

    def add(self, fragments: Any, timeout_s: float) -> int:
        limit = self.producer.plan.max_staleness
        for fragment in fragments:
            known = max(self._since, self.announced[fragment.key])
            assert limit is None or known - oldest_of(fragment) <= limit, "sent though too old"
        mishap = self.mishaps.pop(0) if self.mishaps else None
        try:
            if mishap == "slow":
                return 0
            if mishap == "fail":
                raise MishapError("the storage")
            done = self.buffer.add(fragments, timeout_s)
        except Exception:
            self.refused += [fragment.key for fragment in fragments]
            raise
        finally:
            self._since = self.producer.newest
        if mishap == "forget":
            self.forgotten.update(fragment.key for fragment in fragments[:done])
            return 0
        self.accepted += [fragment.key for fragment in fragments[:done]]
        return done

    def fetch(self, n: int, timeout_s: float, version: int | None = None) -> Any:
        raise NotImplementedError

    def prepared(self) -> int:
        return self.buffer.prepared()

    def new_version(self, version: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class WatchedBuffer(ReplayBuffer):
    """Keeps what it was done with, by key, and the keys of what nobody had fetched when it was closed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.arrived: dict[Any, Any] = {}
        self.unused_at_the_end: set[Any] = set()

    def close(self) -> None:
        with self._changed:
            self.unused_at_the_end |= {
                entry.fragment.key for entry in self._entries.values() if not entry.draws
            }
            super().close()

    def _take_in(self, fragment: Any) -> bool:
        # Under the lock, as the sender hears of it some time later.
        done = super()._take_in(fragment)
        if done:
            self.arrived.setdefault(fragment.key, fragment)
        return done


class WatchedEnvWorker(EnvWorker):
    """Tells the model of each death; its time-out for rows may be changed, but not that of its process."""

    producer: Any
    row_timeout_s: float | None = None

    @property
    def timeout_s(self) -> float:
        return super().timeout_s if self.row_timeout_s is None else self.row_timeout_s

    def fail(self, error: Exception) -> float | None:
        self.producer.streams[self.index].crash()
        self.producer.crashes += 1
        return super().fail(error)
