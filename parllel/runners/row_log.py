"""Contents of a log row: episodes, diagnostics, and time per stage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

import numpy as np

from parllel.cages.traj_info import TrajInfo
from parllel.logging.logger import Logger
from parllel.runs.run_result import RunResult
from parllel.system.compilation import seconds_compiling
from parllel.types import State


class RowLog:
    """Collects episodes until a row is written, and logs them with the diagnostics of algorithm and sampler.

    Args:
        logger: logger that receives the values; the caller writes the row.
    """

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._steps = 0
        self._episodes: list[dict[str, Any]] = []

    def add_batch(self, steps: int, trajs: Sequence[TrajInfo]) -> None:
        """Keep the episodes of a batch for the next row."""
        self._steps += steps
        self._episodes += [traj.as_dict() for traj in trajs]

    def log_batches(
        self, result: RunResult, diagnostics: Mapping[str, Any], stats: Mapping[str, Any]
    ) -> int:
        """Log the episodes, diagnostics and stats since the last call; return the steps since then.

        diagnostics: numbers and arrays from the algorithm.  stats: numbers and arrays from the
            sampler.
        """
        steps, episodes = self._steps, self._episodes
        self._steps, self._episodes = 0, []
        self.log_trajs("training", episodes, result)
        self._log_all("algorithm", diagnostics)
        self._log_all("sampler", stats)
        return steps

    def log_seconds(self, seconds: Mapping[str, float], steps: int) -> None:
        """Log the seconds of each stage, and the steps per second of sampling and of learning."""
        # Without evaluations and checkpoints, whose share depends on settings of the log.
        busy = sum(seconds.get(stage, 0.0) for stage in ("sampling", *LEARNING))
        # The bound is for clocks too coarse to see a small batch.
        self._logger.log_value("time/steps_per_second", steps / max(busy, 1e-9))
        for name, value in seconds.items():
            self._logger.log_value(f"time/{name}_s", value)

    def log_trajs(self, group: str, rows: Sequence[Mapping[str, Any]], result: RunResult) -> None:
        """Log statistics that are numbers in every episode, and add the mean return to the named curve."""
        if not rows:
            return
        for name in rows[0]:
            # The mean over some episodes would pass for that of all, so all must have a number.
            values: list[Any] = [row.get(name) for row in rows]
            if all(isinstance(value, (Real, np.bool_)) for value in values):
                self._logger.log_array(f"{group}/{name}", values)
        mean = float(np.mean([row["return"] for row in rows]))
        result.curves[group].append((result.elapsed_steps, mean))

    def _log_all(self, group: str, values: Mapping[str, Any]) -> None:
        """Log numbers as they are, and arrays as their statistics."""
        for name, value in values.items():
            log = self._logger.log_array if np.ndim(value) else self._logger.log_value
            log(f"{group}/{name}", value)

    def state(self) -> State:
        """Return the collected data; of each episode, only the statistics that would be logged."""
        return {"steps": self._steps, "episodes": [_numbers(row) for row in self._episodes]}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._steps = int(state["steps"])
        self._episodes = [dict(row) for row in state["episodes"]]


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a row, as Python's."""
    # What is no number would not be logged, and need not be something that can be saved.
    found = {name: value for name, value in row.items() if isinstance(value, (Real, np.bool_))}
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in found.items()
    }


# Parts of sampling, measured in one batch of each row; all others are stages of their own.
PARTS = ("inference", "environments", "transforms")
# Stages of learning; the first two exist only in runs with a replay.
LEARNING = ("inserting", "drawing", "optimising")
STAGES = ("sampling", "optimising", "evaluating", "logging", "checkpoints", "imports", "compiling")


class TimeAccount:
    """Seconds spent in each stage, since the last row and in total.

    `imports` is the time for modules that algorithms import only when training begins. `compiling`
    is excluded from all other stages: a first run compiles for seconds what later runs load from a
    cache.

    `sampling` has three parts: inference (the agent and the step transforms), environments (stepping them, or
    waiting for those that step in other processes), and transforms of finished batches. They are measured in
    one batch of each row and scaled up, because reading the clock for every row of every batch
    takes time too.

    Args:
        further: stages of this run besides the usual ones. Their times are taken out of another stage by
            `move`.

    Attributes:
        compiled_before_s: seconds of compilation while the run was built, in no stage. What another run of
            this process compiled does not count.
    """

    _seen_compiling_s = 0.0  # of this process, by all accounts

    def __init__(self, further: Sequence[str] = ()) -> None:
        self.compiled_before_s = self._newly_compiling()
        self._stages = (STAGES[0], *further, *STAGES[1:])
        self._row = dict.fromkeys(self._stages, 0.0)
        self._total = dict.fromkeys((*self._stages, *PARTS), 0.0)
        self._shares: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Context manager that counts the time spent inside it for a stage."""
        begin, compiled = time.perf_counter(), seconds_compiling()
        try:
            yield
        finally:
            compiling = seconds_compiling() - compiled
            self._newly_compiling()
            self._row["compiling"] += compiling
            self._row[name] += time.perf_counter() - begin - compiling

    @classmethod
    def _newly_compiling(cls) -> float:
        seen, cls._seen_compiling_s = cls._seen_compiling_s, seconds_compiling()
        return cls._seen_compiling_s - seen

    def move(self, seconds: Mapping[str, float], *, out_of: str) -> None:
        """Count seconds of a stage for others, by their names."""
        for name, moved in seconds.items():
            self._row[name] += moved
            self._row[out_of] -= moved

    def see_parts(self, seconds: Mapping[str, float]) -> None:
        """Record how long the parts of one batch took."""
        # As shares: the batch that was measured may be longer or shorter than the others.
        total = sum(seconds.values())
        self._shares = {name: value / total for name, value in seconds.items()} if total else {}

    @property
    def wants_parts(self) -> bool:
        """Whether no batch has been measured for this row yet."""
        return not self._shares

    def take_row(self) -> dict[str, float]:
        """Return the seconds of each stage and part since the last call, and start counting again."""
        row = dict(self._row)
        # Scaled up from the batch that was measured to all batches of the row.
        row |= {part: share * row["sampling"] for part, share in self._shares.items()}
        for name, seconds in row.items():
            self._total[name] += seconds
        self._row = dict.fromkeys(self._row, 0.0)
        self._shares = {}
        return row

    def lines(self) -> list[str]:
        """Return the total times, one stage per line, and their sum. Stages below 0.05 % are left out."""
        totals = {name: self._total[name] + self._row.get(name, 0.0) for name in self._total}
        # Parts are within sampling: the stages alone add up to the whole.
        all_s = sum(totals[stage] for stage in self._stages)
        lines = []
        for stage in self._stages:
            lines.append((stage, totals[stage]))
            if stage == "sampling":
                lines += [(f"  {part}", totals[part]) for part in PARTS]
        said = [
            f"{name:<14}{seconds:>9.1f} s {seconds / all_s:>6.1%}"
            for name, seconds in lines
            if seconds > all_s / 2000
        ]
        if not said:
            return []
        once = totals["imports"] + totals["compiling"]
        return [
            *said,
            f"{'all':<14}{all_s:>9.1f} s, {all_s - once:.1f} s without imports and compiling",
        ]

    def state(self) -> State:
        """Return the seconds so far."""
        return {"row": dict(self._row), "total": dict(self._total)}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        # Earlier checkpoints know no imports.
        self._row.update({name: float(state["row"].get(name, 0)) for name in self._row})
        total = dict(state["total"])
        if "waiting" in total:  # what checkpoints of version 0.1 call the environments
            total["environments"] = total.pop("waiting")
        self._total.update({name: float(total.get(name, 0)) for name in self._total})
