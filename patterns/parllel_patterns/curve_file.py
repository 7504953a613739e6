"""Learning curves of runs as a picture, and as JSON with the settings to reproduce them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parllel.pictures import Curve, plot_learning_curve
from parllel.runs import RunFolder, RunResult, versions


class CurveFile:
    """Files written by `--curve NAME`: NAME.json and NAME.png.

    Create it before the runs, pass it to `main` or `main_for_each`, and call `write` after them::

        curve = CurveFile()
        result, folder = main(build, Config, base="runs", curve=curve)
        curve.write([(result, folder)], result.curves, title="PPO on CartPole")

    Attributes:
        name: value of the flag. None if the flag was not given; nothing is written then.
    """

    HELP = "write the learning curve to NAME.json and NAME.png"

    def __init__(self) -> None:
        self.name: str | None = None
        self._began_s, self._processor_began_s = time.monotonic(), _processor_seconds()

    def write(
        self,
        runs: Sequence[tuple[RunResult, RunFolder]],
        curves: Mapping[str, Curve],
        title: str,
        reference: Mapping[str, float] | None = None,
        **more: Any,
    ) -> None:
        """Write the files. Does nothing without the flag, or if no curve has a point.

        Args:
            runs: the runs of the curves. The JSON holds the settings that all their configs share, the total
                number of environment steps, and the time in seconds since this object was created, by the
                clock and of processors, including child processes. It names what stopped a run early, and
                the title of the picture says that one was.
            curves: points `(steps, mean return)`, keyed by label.
            title: title of the picture.
            reference: returns to draw as horizontal lines, keyed by label.
            more: further JSON values to write.
        """
        if self.name is None or not any(curves.values()):
            return
        stopped_by = [result.stopped_by for result, _ in runs if result.stopped_by is not None]
        elapsed_steps = sum(result.elapsed_steps for result, _ in runs)
        about = {
            "config": _shared([folder.read_record().config for _, folder in runs]),
            "versions": versions(),
            "elapsed_steps": elapsed_steps,
            "seconds": round(time.monotonic() - self._began_s, 2),
            "processor_seconds": round(_processor_seconds() - self._processor_began_s, 2),
            # The curve of a stopped run could be mistaken for a result.
            **({"stopped_by": stopped_by[0]} if stopped_by else {}),
            **more,
            "curves": curves,
        }
        Path(f"{self.name}.json").write_text(json.dumps(about, indent=1) + "\n")
        end = max(curve[-1][0] for curve in curves.values() if curve)
        # Horizontal lines must span the longest curve, which is known only now.
        levels = {label: [(0.0, y), (end, y)] for label, y in (reference or {}).items()}
        title += " (stopped early)" if stopped_by else ""
        plot_learning_curve(f"{self.name}.png", {**curves, **levels}, title)


def _processor_seconds() -> float:
    """Return the processor time of this process and its ended child processes."""
    # Not `resource`, which only Unix has. Workers have ended after a run, so they are included.
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _shared(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # The runs of a picture differ at least in their seeds, so no single config describes them all.
    first = configs[0]
    return {key: first[key] for key in first if all(one.get(key) == first[key] for one in configs)}
