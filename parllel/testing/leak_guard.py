"""Fail a test that leaves a process, thread, file descriptor or shared memory segment behind.

Linux has all four checks; a system without /proc has the one for threads.

As a pytest fixture for every test of a suite:

    @pytest.fixture(autouse=True)
    def no_leaks():
        with LeakGuard():
            yield

Declare anything that outlives a test as a `Service`.
"""

from __future__ import annotations

from types import TracebackType

from parllel.testing.holdings import Holdings, LeakError, collect_children, settle
from parllel.testing.services import adopted_by_services, claimed_by_services
from parllel.testing.subreaper import begin_adopting, end_adopting


class LeakGuard:
    """Context that compares this process's resources before and after, allowing `grace_s` for cleanup.

    The processes of multiprocessing itself (resource tracker, fork servers) and their descriptors may
    stay, and so may the pipe that tells children that their parent lives, and what belongs to a
    `Service` that has not ended. While the guard is in force, descendants whose parent ended become
    children of this process, so that none escapes.

    Raises:
        LeakError: on leaving, if something is left, unless another exception is on its way. Left
            processes are killed and left segments removed in any case.
    """

    def __init__(self, grace_s: float = 2.0) -> None:
        self.grace_s = grace_s

    def __enter__(self) -> LeakGuard:
        begin_adopting()
        self._before = Holdings.now()
        # So that they know their processes before any is orphaned.
        claimed_by_services(self._before)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            left = settle(self._left, self.grace_s)
            # Before they are removed: the command line of a process is gone with it.
            report = left.describe()
            if left:
                # Whatever the test's outcome: one leak must fail one test, and not all that follow.
                left.remove()
            others = {entry.identity for entry in self._before.processes} | adopted_by_services()
            collect_children(lambda identity: identity not in others)
        finally:
            end_adopting()
        # A leak after a failure is a consequence, and would hide the failure.
        if report and error is None:
            raise LeakError(f"left behind:\n{report}")

    def _left(self) -> Holdings:
        now = Holdings.now()
        claimed = claimed_by_services(now)
        left = now.without(self._before).without(claimed)
        ours = now.without(claimed).processes  # other programs run here too, and services
        return left.without_foreign_segments(ours)
