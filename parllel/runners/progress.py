"""The progress bar of a run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from time import monotonic

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

# Seconds between two looks at what is below the bar.
_LOOK_S = 0.5


class ProgressBar:
    """Shows the number of steps done, steps per second, time left, and the last message.

    Args:
        console: console to draw on; None draws nothing.
        n_steps: total number of environment steps of the run.
        done: number of steps already done when the bar begins.
        overview: function that returns lines to show below the bar, or "".
    """

    def __init__(
        self,
        console: Console | None,
        n_steps: int,
        done: int = 0,
        overview: Callable[[], str] | None = None,
    ) -> None:
        self._overview, self._next_look_s = overview, 0.0
        self._progress = _Bar(
            TextColumn("[bold]{task.percentage:>3.0f}%"),
            BarColumn(bar_width=20),
            _Steps(Column(no_wrap=True)),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=console is None or not _can_move(console),
        )
        self._task = self._progress.add_task("", total=n_steps, completed=done)

    def update(self, elapsed_steps: int) -> None:
        """Update the bar."""
        self._progress.update(self._task, completed=elapsed_steps)
        # Not by the thread that draws, and seldom: it goes through all that the samplers know.
        if self._overview is not None and not self._progress.disable:
            now = monotonic()
            if now >= self._next_look_s:
                self._next_look_s = now + _LOOK_S
                self._progress.below = self._overview()

    def say(self, text: str) -> None:
        """Show `text` after the bar."""
        self._progress.update(self._task, description=text)

    def announce_stop(self, signal_name: str) -> None:
        """Announce that the run ends after the current batch: in the bar, or on standard error."""
        text = f"{signal_name}: stopping after this batch; repeat it to stop at once"
        if not self._progress.disable:
            self.say(text)
            return
        # Called by a signal handler, which may have interrupted a `print` to the same stream.
        with contextlib.suppress(OSError):
            os.write(2, f"{text}\n".encode())

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        # It writes its last line now. A full disk does not undo what the run has done, and neither does a
        # closed pipe, at which rich would end the program.
        with contextlib.suppress(OSError, SystemExit):
            self._progress.stop()


def _can_move(console: Console) -> bool:
    """Return whether the bar can be drawn again in place: in notebooks, this takes ipywidgets."""
    return not console.is_jupyter or find_spec("ipywidgets") is not None


class _Bar(Progress):
    """A bar with some lines below it."""

    below = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bar, and the lines if there are any."""
        yield from super().get_renderables()
        if self.below:
            yield Text(self.below, style="dim")


class _Steps(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = f"{task.speed:,.0f}/s" if task.speed else "-"
        return Text(f"{int(task.completed):,}/{int(task.total or 0):,} steps, {speed}")
