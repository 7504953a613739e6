"""A picture of how returns grew with experience."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

Curve = Sequence[tuple[int, float]]  # (environment steps, return)


def plot_learning_curve(
    path: str | os.PathLike[str], curves: Mapping[str, Curve], title: str = ""
) -> None:
    """Draw curves by name into a PNG file; empty ones are left out.

    Raises:
        ImportError: without matplotlib; names the extra.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "plotting needs matplotlib: pip install parllel[plot]", name=error.name
        ) from error
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    for name, curve in curves.items():
        if curve:
            steps, returns = zip(*curve, strict=True)
            few = len(curve) < 40
            axes.plot(steps, returns, label=name, marker="o" if few else None, markersize=3)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("mean return")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    if any(curves.values()):
        axes.legend()
    figure.savefig(path, dpi=120)
