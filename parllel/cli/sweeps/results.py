"""Results of a sweep: means over seeds with intervals, as a table, as JSON and as a picture."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parllel.cli.seed_groups import join, member
from parllel.cli.sweeps.folder import ENDED, SweepFolder
from parllel.cli.sweeps.scheduler import ScheduledRun
from parllel.cli.sweeps.settings import RUN, text_of
from parllel.logging.files import replaced_file
from parllel.pictures.learning_curve import Curve, plot_learning_curve

WIDTH = 200  # characters of the table in a file or a pipe
MAX_ROWS = 50  # of the table; results.json has all
_MAX_CURVES = 10  # of the best settings; more cannot be told apart
# 97.5 % quantiles of Student's distribution for 1, 2, ... degrees of freedom.
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class SettingsResult:
    """Result of the runs that differ only in their seed.

    Attributes:
        settings: their settings, without seeds.
        mean: mean of their last returns; None without any.
        deviation: sample standard deviation; None for fewer than two runs.
        interval: half width of the 95 % interval of the mean by Student's distribution; None likewise.
        n_seeds: how many runs are in the mean.
        runs: names of all runs, those without a result included.
    """

    settings: dict[str, Any]
    mean: float | None
    deviation: float | None
    interval: float | None
    n_seeds: int
    runs: list[str]

    def label(self, keys: Sequence[str]) -> str:
        """Return the values of some keys as text, or the name of a run that is not named by them."""
        if RUN in self.settings:
            return str(self.settings[RUN])
        text = ", ".join(f"{key}={text_of(self.settings[key])}" for key in keys)
        return text or "all runs"


def results_of(runs: Sequence[ScheduledRun]) -> list[SettingsResult]:
    """Return the result for each settings, the highest mean first, those without a mean last."""
    groups: dict[str, list[ScheduledRun]] = {}
    for run in runs:
        groups.setdefault(repr(run.settings.group), []).append(run)
    found = [_result(members) for members in groups.values()]
    return sorted(found, key=lambda one: math.inf if one.mean is None else -one.mean)


def _result(members: Sequence[ScheduledRun]) -> SettingsResult:
    values = [
        run.progress.value
        for run in members
        if run.state in ENDED and run.progress.value is not None
    ]
    n = len(values)
    deviation = interval = None
    if n > 1:
        deviation = statistics.stdev(values)
        interval = student_quantile(n - 1) * deviation / math.sqrt(n)
    mean = statistics.fmean(values) if values else None
    names = [run.name for run in members]
    return SettingsResult(members[0].settings.group, mean, deviation, interval, n, names)


def student_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's distribution, to 1 % from 31 degrees of freedom."""
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.5 / freedom


def table_of(results: Sequence[SettingsResult]) -> Table:
    """Return the table of the best settings and their mean returns."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    keys = _telling_keys(results)
    for key in keys:
        table.add_column(Text(key), overflow="fold")
    several = any(len(one.runs) > 1 for one in results)
    names = ("mean return", "95 % interval", "deviation", "seeds") if several else ("return",)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for one in results[:MAX_ROWS]:
        low_high = ""
        if one.mean is not None and one.interval is not None:
            low_high = f"{one.mean - one.interval:.1f} to {one.mean + one.interval:.1f}"
        whole = "" if one.n_seeds == len(one.runs) else f" of {len(one.runs)}"
        numbers = (_number(one.mean), low_high, _number(one.deviation), f"{one.n_seeds}{whole}")
        table.add_row(*(Text(text_of(one.settings[key])) for key in keys), *numbers[: len(names)])
    return table


def _telling_keys(results: Sequence[SettingsResult]) -> list[str]:
    """Return the keys whose values differ, or all keys of a single result."""
    keys = list(results[0].settings) if results else []
    if len(results) == 1:
        return keys
    return [
        key for key in keys if any(r.settings[key] != results[0].settings[key] for r in results)
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def problems_of(runs: Sequence[ScheduledRun], folder: SweepFolder) -> list[str]:
    """Return a line for each failed run, with its error and its log."""
    return [
        f"{run.state}: {run.name}: {run.error} (log: {folder.log(run.name)})"
        for run in runs
        if run.state in ("failed", "damaged")
    ]


def write_results(
    folder: SweepFolder, runs: Sequence[ScheduledRun], key: str
) -> tuple[list[SettingsResult], list[str]]:
    """Write results.json, results.txt and curves.png. Returns the results, and remarks on the curves.

    key: column of progress.csv that the returns are from.

    Raises:
        OSError: if a file cannot be written.
    """
    results = results_of(runs)
    folder.write_json(
        "results.json",
        {
            "key": key,
            "settings": [asdict(one) for one in results],
            "runs": [
                {
                    "name": run.name,
                    "settings": run.settings.values,
                    "state": run.state,
                    "steps": run.progress.steps,
                    "return": run.progress.value,
                    "error": run.error or None,
                }
                for run in runs
            ],
        },
    )
    text = io.StringIO()
    console = Console(file=text, width=WIDTH)
    console.print(table_of(results))
    for line in problems_of(runs, folder):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    with replaced_file(folder.path / "results.txt") as file:
        file.write(text.getvalue().encode())
    return results, _draw(folder, runs, results, key)


def _draw(
    folder: SweepFolder,
    runs: Sequence[ScheduledRun],
    results: Sequence[SettingsResult],
    key: str,
) -> list[str]:
    by_name = {run.name: run for run in runs}
    curves: dict[str, Curve] = {}
    remarks: list[str] = []
    keys = _telling_keys(results)
    for one in results[:_MAX_CURVES]:
        label = one.label(keys)
        drawn = [by_name[name] for name in one.runs if by_name[name].progress.curve]
        members = [member(folder.run(run.name), run.progress.curve) for run in drawn]
        if len(members) == 1:
            curves[label] = members[0].curve
        elif members:
            curve, n, done = join(members)
            remarks += [f"curves.png: {remark}" for remark in done]
            curves[f"{label} ({n} runs)"] = curve
    if not any(curves.values()):
        return [f"there is no picture, as no run has logged {key!r}; --key names another column"]
    if len(results) > _MAX_CURVES:
        remarks.append(f"the picture shows the best {_MAX_CURVES} of {len(results)} settings")
    try:
        plot_learning_curve(folder.path / "curves.png", curves, ylabel=key)
    except ImportError as error:
        return [f"there is no picture: {error}"]
    return remarks
