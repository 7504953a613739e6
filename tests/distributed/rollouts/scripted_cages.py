"""Cages of this process that answer when a script says so, and die as processes do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Any

from parllel.cages import Cage
from parllel.cages.cage_interface import PendingRow
from parllel.errors import WorkerDiedError


class Script:
    """What one environment does.

    waits: how often each of its rows says that it is not done, in order, again and again.

    Attributes:
        fault: what happens next, and when: "step", "start", "reset" and "make" are deaths, "hang" is a row
            that is never done.
        worker: whose patience ends when it hangs.
    """

    def __init__(self, waits: Sequence[int], offset: int) -> None:
        self.waits = cycle([*waits[offset % len(waits) :], *waits[: offset % len(waits)]])
        self.fault: str | None = None
        self.worker: Any = None

    def dies(self, phase: str) -> None:
        """Raise the fault of a phase, if it is the next."""
        if self.fault == phase:
            self.fault = None
            raise WorkerDiedError(f"died in its {phase}")


class _Answer(PendingRow):
    def __init__(self, script: Script) -> None:
        self._script, self._left = script, next(script.waits)
        self.hangs = script.fault == "hang"
        if self.hangs and script.worker is not None:
            script.fault, script.worker.row_timeout_s = None, 1e-3

    def done(self) -> bool:
        self._left -= 1
        return self._left < 0 and not self.hangs


class ScriptedCage(Cage):
    """A cage with a script."""

    def __init__(self, script: Script, *args: Any, **options: Any) -> None:
        for name in ("start_method", "timeout_s"):
            options.pop(name, None)
        self._script = script
        if self._script.worker is not None:
            self._script.worker.row_timeout_s = 60.0
        self._script.dies("make")
        super().__init__(*args, **options)
        self._phase, self._answer = "make", _Answer(self._script)

    def start_reset(self, t: int = 0, **options: Any) -> None:
        super().start_reset(t, **options)
        self._phase, self._answer = "reset", _Answer(self._script)

    def start_row(self, t: int, group: int = 0) -> None:
        self._script.dies("start")
        super().start_row(t, group)
        self._phase, self._answer = "step", _Answer(self._script)

    def awaited(self, group: int = 0) -> PendingRow:
        return self._answer

    def finish_row(self, group: int = 0) -> None:
        # After the step, whose results are in the samples but were never handed over.
        self._script.dies(self._phase)
        super().finish_row(group)


def scripted(script: Script) -> Any:
    """Return what makes such cages, in the place of ProcessCage."""
    return partial(ScriptedCage, script)
