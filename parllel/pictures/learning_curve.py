"""Draw, read and combine learning curves."""

from __future__ import annotations

import csv
import difflib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from parllel.errors import install_command

# Points `(environment steps, value)`, or with a band around it `(steps, value, low, high)`.
Curve: TypeAlias = Sequence[tuple[float, float] | tuple[float, float, float, float]]


def check_plot_path(path: Path) -> None:
    """Raise ValueError unless the ending of a path is that of a format that matplotlib writes.

    Raises:
        ImportError: without matplotlib; names the extra.
    """
    with _needing_matplotlib():
        from matplotlib.backend_bases import FigureCanvasBase
    known = sorted(f".{ending}" for ending in FigureCanvasBase.get_supported_filetypes())
    if path.suffix.lower() not in known:
        raise ValueError(
            f"{path}: expected a file name that ends in {', '.join(known[:-1])} or {known[-1]}"
        )


def plot_learning_curve(
    path: str | os.PathLike[str],
    curves: Mapping[str, Curve],
    title: str = "",
    *,
    ylabel: str = "mean return",
) -> None:
    """Draw curves by name, with their bands if they have any; empty ones are left out.

    path: its ending is the format, such as .png or .svg; without one .png is added.

    Raises:
        ImportError: without matplotlib; names the extra.
        ValueError: for an ending that `check_plot_path` refuses.
    """
    with _needing_matplotlib():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    # With margins that fit any numbers: finding those that fit best takes longer than all else.
    figure = Figure(figsize=(7, 4.2))
    figure.subplots_adjust(left=0.13, right=0.97, bottom=0.13, top=0.92)
    # Not pyplot: it would choose a backend for the whole program, and keep each figure until it is closed.
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    for name, curve in curves.items():
        if curve:
            steps, values, *band = zip(*curve, strict=True)
            few = len(curve) < 40
            marker = "o" if few else None
            (line,) = axes.plot(steps, values, label=name, marker=marker, markersize=3)
            if band:
                axes.fill_between(steps, *band, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xlabel("environment steps")
    # Names of runs and columns are not TeX, even if they contain dollar signs.
    axes.set_ylabel(ylabel, parse_math=False)
    axes.set_title(title, parse_math=False)
    axes.grid(alpha=0.3)
    if any(curves.values()):
        for text in axes.legend().get_texts():
            text.set_parse_math(False)
    figure.savefig(path, dpi=120)


@contextmanager
def _needing_matplotlib() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"plotting needs matplotlib: {install_command('plot')}", name=error.name
        ) from error


def read_curve(path: str | os.PathLike[str], key: str = "evaluation/return/mean") -> Curve:
    """Return `(step, value)` of each row of a `progress.csv` that has a finite number under `key`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it has no such column (names the nearest one), or is no such table.
    """
    with Path(path).open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        columns = next(rows, ["step"])
        if columns[0] != "step":
            raise ValueError(
                f"{path}: expected a table whose first column is 'step', got {columns}"
            )
        if key not in columns:
            raise ValueError(f"{path}: no column {key!r}{_nearest(key, columns[1:])}")
        place = columns.index(key)
        # A line that is shorter than the header was cut short by a crash.
        cells = [(row[0], row[place]) for row in rows if len(row) == len(columns)]
    points = [(_number(step), _number(value)) for step, value in cells]
    return [point for point in points if math.isfinite(point[0]) and math.isfinite(point[1])]


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:  # empty, or cut short
        return math.nan


def _nearest(key: str, columns: Sequence[str]) -> str:
    if not columns:
        return ", as it has no rows yet"
    # Without a cutoff, as any names say more than none.
    near = difflib.get_close_matches(key, columns, n=3, cutoff=0.0)
    return "; did you mean " + ", ".join(repr(name) for name in near) + "?"


def curve_with_band(curves: Sequence[Curve]) -> Curve:
    """Return one curve of several: the mean, with the smallest and the largest value as its band.

    The range rather than a standard error: runs are repeated with a handful of seeds as a rule, of which
    the range hides nothing. Runs may have been logged at different steps. So each curve is interpolated
    linearly to all steps that any of them has, from where the last of them begins to where the first of
    them ends. Empty curves are left out; without others the result is empty.
    """
    found = [np.array([point[:2] for point in curve], float) for curve in curves if curve]
    if not found:
        return []
    begin = max(curve[0, 0] for curve in found)
    end = min(curve[-1, 0] for curve in found)
    steps = np.unique(np.concatenate([curve[:, 0] for curve in found]))
    steps = steps[(begin <= steps) & (steps <= end)]
    values = np.array([np.interp(steps, curve[:, 0], curve[:, 1]) for curve in found])
    columns = (steps, values.mean(axis=0), values.min(axis=0), values.max(axis=0))
    return list(zip(*(column.tolist() for column in columns), strict=True))
