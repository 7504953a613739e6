"""Display of a sweep in progress: a live table in a terminal, otherwise a line per event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from parllel.cli.sweeps.scheduler import ScheduledRun

_ORDER = ("running", "failed", "damaged")  # shown first where not all runs fit; the others last
_FRAME_LINES = 5  # header, summary, and room for the prompt


class Display:
    """Context manager that shows the runs of a sweep.

    Args:
        console: where to show them.
        runs: the runs; more may be appended later.
        n_runs: how many there will be.
        folder: folder of the sweep.
    """

    def __init__(
        self, console: Console, runs: Sequence[ScheduledRun], n_runs: int, folder: Path
    ) -> None:
        self._console, self._runs, self._n_runs, self._folder = console, runs, n_runs, folder
        self._shown: dict[str, str] = {}  # state of each run in the lines so far
        self._message = ""
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(console=console, get_renderable=self._table, refresh_per_second=2)

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, run: ScheduledRun) -> None:
        """Show a changed run. Without a terminal, a line is printed if its state has changed."""
        if self._live is not None or self._shown.get(run.name) == run.state:
            return
        self._shown[run.name] = run.state
        self._print(f"{self._count()}{run.name}: {facts_of(run)}")

    def announce(self, signal: str) -> None:
        """Say that a signal stops the sweep."""
        self._message = f"{signal}: runs write their checkpoints and end; once more kills them"
        if self._live is None:
            self._print(self._message)

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def _count(self) -> str:
        over = sum(run.state not in ("waiting", "running") for run in self._runs)
        return f"[{over}/{self._n_runs}] "

    def _table(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("run", overflow="fold")
        table.add_column("state", no_wrap=True)
        table.add_column("steps", justify="right", no_wrap=True)
        table.add_column("return", justify="right", no_wrap=True)
        room = max(3, self._console.height - _FRAME_LINES)
        places = {state: i for i, state in enumerate(_ORDER)}
        # Ended runs last, the latest of them first.
        begun = [run for run in reversed(self._runs) if run.state != "waiting"]
        begun.sort(key=lambda run: places.get(run.state, len(_ORDER)))
        for run in begun[:room]:
            progress = run.progress
            table.add_row(
                Text(run.name),
                Text(run.state, style="red" if run.state in ("failed", "damaged") else ""),
                steps_of(run),
                "" if progress.value is None else f"{progress.value:.1f}",
            )
        counts = Counter(run.state for run in self._runs)
        counts["waiting"] += self._n_runs - len(self._runs)
        summary = ", ".join(f"{n} {state}" for state, n in counts.items() if n)
        return Group(table, Text(f"{summary} in {self._folder}"), Text(self._message, "yellow"))


def steps_of(run: ScheduledRun) -> str:
    """Return the steps of a run, with its goal if its config names one."""
    steps, goal = run.progress.steps, run.settings.config.get("n_steps")
    if steps is None:
        return ""
    return f"{steps:,} of {goal:,}" if isinstance(goal, int) else f"{steps:,}"


def facts_of(run: ScheduledRun) -> str:
    """Return state, steps and return of a run in words."""
    if run.error:
        return f"{run.state}: {run.error}"
    facts = [run.state]
    if run.state != "running" or run.progress.steps:
        steps, value = steps_of(run), run.progress.value
        facts += [f"{steps} steps"] if steps else []
        facts += [] if value is None else [f"return {value:.1f}"]
    return ", ".join(facts)
