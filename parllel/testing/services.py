"""Declaration of resources that outlive a test, for the leak guard: a server, a broker, a cluster.

    a fixture      enters a Service and starts it; `adopt` records its processes; on leaving, everything that
                   the service ever had is looked over
    the service    starts, forks, opens and ends what it likes, in its processes and in this one
    the guards     ask at the beginning and the end of a test which of this process's holdings belong to a
                   service (`claimed_by_services`); these they neither report nor kill

A process belongs to a service if it was adopted, if its parent belongs to it, if it was found to belong to it
earlier, or if it carries the service's mark in its environment. The last two are for orphans, whose parent is
this process by then: without a mark, one that is orphaned before it is first seen counts as the test's.
"""

from __future__ import annotations

import glob
import threading
import uuid
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType

from parllel.system.processes.process_table import ProcessEntry, process_entry
from parllel.testing.holdings import Holdings, LeakError, collect_children, mapped_segments, settle
from parllel.testing.subreaper import begin_adopting, end_adopting

_MARK = "PARLLEL_TEST_SERVICE"
_KILL_ROUNDS = 10  # a server that forks while it is killed has to be looked for again

_live: list[Service] = []


class Service:
    """Something that outlives single tests, with its resources in this process and in others.

    Enter it before the service is started, and leave it after the service has been stopped::

        @pytest.fixture(scope="session")
        def broker(tmp_path_factory):
            with Service("broker", threads="broker-client-*", descriptors="socket:*") as service:
                process = subprocess.Popen(
                    ["broker", "--data", tmp_path_factory.mktemp("broker")],
                    env={**os.environ, **service.environment},
                )
                service.adopt(process.pid)
                yield connect(process)
                process.terminate()
                process.wait()

    While it lives, guards leave alone whatever belongs to it, including what appears during a test. When it
    ends, what is left of it is reported once; processes are killed and segments removed. Several may live at
    once, and one may begin or end within a test, or crash.

    Patterns are those of `fnmatch`, for what appears after the service is entered. Declare them as narrowly
    as the service allows: what matches is looked at again only when the service ends.

    Args:
        name: for reports.
        threads: patterns of threads of this process, for their names or for "module.function" of what they
            run, as in `socketserver.*`; a subclass of Thread without a target has "module.Class".
        descriptors: patterns of what file descriptors of this process lead to, as in `socket:*`.
        segments: patterns of names in /dev/shm; those that its processes were seen to map are its own.
        keeps: patterns of descriptors that it is known to keep open in this process until that ends, as
            libraries with threads of their own do; they are not reported.
        grace_s: how long things may take to go when it ends.

    Raises:
        LeakError: on leaving, if something is left, unless another exception is on its way.
    """

    def __init__(
        self,
        name: str,
        *,
        threads: str | Iterable[str] = (),
        descriptors: str | Iterable[str] = (),
        segments: str | Iterable[str] = (),
        keeps: str | Iterable[str] = (),
        grace_s: float = 5.0,
    ) -> None:
        self.name = name
        self.grace_s = grace_s
        self._thread_patterns = _patterns(threads)
        self._kept_patterns = _patterns(keeps)
        self._descriptor_patterns = _patterns(descriptors) + self._kept_patterns
        self._segment_patterns = _patterns(segments)
        self._mark = f"{_MARK}_{uuid.uuid4().hex}"
        self._adopted: set[tuple[int, int]] = set()
        self._seen: set[tuple[int, int]] = set()
        self._threads: set[threading.Thread] = set()

    @property
    def environment(self) -> dict[str, str]:
        """The mark: a variable by which the service's programs, and all that they start, are known.

        For a library that takes no environment, set it in `os.environ` only while the library starts.
        """
        # In the name rather than the value, so that a service within a service carries both.
        return {self._mark: self.name}

    def __enter__(self) -> Service:
        begin_adopting()
        self._before = Holdings.now()
        _live.append(self)
        return self

    def adopt(self, *pids: int) -> None:
        """Assign processes and all their descendants to the service.

        Raises:
            ProcessLookupError: if there is none with such an id.
        """
        for pid in pids:
            entry = process_entry(pid)
            if entry is None:
                raise ProcessLookupError(
                    f"service {self.name!r}: there is no process {pid}; adopt it before it is waited for"
                )
            self._adopted.add(entry.identity)
        self.claim(Holdings.now())

    def adopt_new(self) -> None:
        """Assign everything that has appeared since the service was entered to it.

        For libraries that start processes and threads without naming them. Other services keep theirs.
        """
        now = Holdings.now()
        new = now.without(self._before).without(_claimed(now, except_for=self))
        new = new.without_foreign_segments(now.processes)
        self._adopted |= {entry.identity for entry in new.processes}
        self._threads |= new.threads
        self._descriptor_patterns += tuple(map(glob.escape, new.descriptors))
        self._segment_patterns += tuple(map(glob.escape, new.segments))
        self.claim(now)

    def claim(self, now: Holdings) -> Holdings:
        """Return the part of `now` that belongs to the service."""
        new = now.without(self._before)
        processes = self._processes_of(now)
        segments = {name for name in new.segments if _match(name, self._segment_patterns)}
        if processes and new.segments - segments:
            pids = {entry.pid for entry in processes}
            mapped = mapped_segments(new.segments - segments, lambda pid: pid in pids)
            # Kept for its end, when no process maps them any more.
            self._segment_patterns += tuple(map(glob.escape, mapped))
            segments |= mapped
        return Holdings(
            processes,
            frozenset(thread for thread in new.threads if self._owns_thread(thread)),
            Counter(
                {
                    target: count
                    for target, count in new.descriptors.items()
                    if _match(target, self._descriptor_patterns)
                }
            ),
            frozenset(segments),
        )

    def _processes_of(self, now: Holdings) -> frozenset[ProcessEntry]:
        entries = {entry.pid: entry for entry in now.processes}
        known = {entry.identity for entry in self._before.processes}

        def owned(entry: ProcessEntry | None) -> bool:
            if entry is None:
                return False
            if entry.identity in self._adopted or entry.identity in self._seen:
                return True
            if owned(entries.get(entry.parent)):
                return True
            return entry.identity not in known and self._is_marked(entry.pid)

        found = frozenset(entry for entry in now.processes if owned(entry))
        self._seen |= {entry.identity for entry in found}
        return found

    def _is_marked(self, pid: int) -> bool:
        try:
            return f"{self._mark}=".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # it has ended, or belongs to another user
            return False

    def _owns_thread(self, thread: threading.Thread) -> bool:
        if thread in self._threads:
            return True
        # A thread has no target any more once it has run it.
        runs = getattr(thread, "_target", None) or type(thread)
        owner = f"{getattr(runs, '__module__', '')}.{getattr(runs, '__qualname__', '')}"
        return _match(thread.name, self._thread_patterns) or _match(owner, self._thread_patterns)

    def _left(self) -> Holdings:
        now = Holdings.now()
        left = self.claim(now).without(_claimed(now, except_for=self))
        left = left.without_foreign_segments(now.processes)
        leaks = {
            target: count
            for target, count in left.descriptors.items()
            if not _match(target, self._kept_patterns)
        }
        return Holdings(left.processes, left.threads, Counter(leaks), left.segments)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            left = settle(self._left, self.grace_s)
            report = left.describe()
            # What was adopted and has ended in order is left to what started it, for its exit status.
            ours = self._seen - self._adopted
            for _ in range(_KILL_ROUNDS):
                if not left.processes and not left.segments:
                    break
                left.remove()
                ours |= {entry.identity for entry in left.processes}
                left = self._left()
            collect_children(lambda identity: identity in ours)
        finally:
            _live.remove(self)
            end_adopting()
        if report and error is None:
            raise LeakError(f"service {self.name!r} left behind:\n{report}")


def claimed_by_services(now: Holdings) -> Holdings:
    """Return the part of `now` that belongs to live services."""
    return _claimed(now, except_for=None)


def adopted_by_services() -> set[tuple[int, int]]:
    """Return the identities of processes that live services have adopted: their starters wait for them."""
    return {identity for service in _live for identity in service._adopted}


def _claimed(now: Holdings, except_for: Service | None) -> Holdings:
    claims = [service.claim(now) for service in _live if service is not except_for]
    # The larger count, not the sum: two services may declare the same pattern.
    descriptors: Counter[str] = Counter()
    for claim in claims:
        descriptors |= claim.descriptors
    return Holdings(
        frozenset(entry for claim in claims for entry in claim.processes),
        frozenset(thread for claim in claims for thread in claim.threads),
        descriptors,
        frozenset(name for claim in claims for name in claim.segments),
    )


def _patterns(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _match(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
