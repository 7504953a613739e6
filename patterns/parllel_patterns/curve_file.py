"""The learning curves of runs as a picture, and as JSON with all that is needed to repeat them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parllel.pictures import Curve, plot_learning_curve
from parllel.runs import RunFolder, RunResult, versions


class CurveFile:
    """What `--curve NAME` writes: NAME.json and NAME.png.

    Make it before the runs, pass it to `main` or `main_for_each`, and call `write` after them::

        curve = CurveFile()
        result, folder = main(build, Config, base="runs", curve=curve)
        curve.write([(result, folder)], result.curves, title="PPO on CartPole")

    Attributes:
        name: the flag's value; None if it was not given, and then nothing is written.
    """

    HELP = "write the learning curve to NAME.json and NAME.png"

    def __init__(self) -> None:
        self.name: str | None = None
        self._began_s = _processor_seconds()

    def write(
        self,
        runs: Sequence[tuple[RunResult, RunFolder]],
        curves: Mapping[str, Curve],
        title: str,
        reference: Mapping[str, float] | None = None,
        **more: Any,
    ) -> None:
        """Write the files, unless the flag was not given or a run was stopped before its end.

        Args:
            runs: whose curves these are. The JSON holds the part of their configs that is the same for all,
                the environment steps of all together, and the processor time since this object was made, in
                seconds; that of child processes is included.
            curves: `(steps, mean return)` by label.
            title: of the picture.
            reference: returns to draw as level lines, by label.
            more: further JSON values.
        """
        # The curve of a run that was stopped would pass for a result.
        if self.name is None or any(result.stopped_by is not None for result, _ in runs):
            return
        elapsed_steps = sum(result.elapsed_steps for result, _ in runs)
        about = {
            "config": _shared([folder.read_record().config for _, folder in runs]),
            "versions": versions(),
            "elapsed_steps": elapsed_steps,
            "processor_seconds": round(_processor_seconds() - self._began_s, 2),
            **more,
            "curves": curves,
        }
        Path(f"{self.name}.json").write_text(json.dumps(about, indent=1) + "\n")
        end = max(curve[-1][0] for curve in curves.values() if curve)
        # Only now is the longest curve known, which the level lines must span.
        levels = {label: [(0.0, y), (end, y)] for label, y in (reference or {}).items()}
        plot_learning_curve(f"{self.name}.png", {**curves, **levels}, title)


def _processor_seconds() -> float:
    """Return the processor time of this process, and of its child processes that have ended."""
    # Not `resource`, which only Unix has. Workers count once they have ended, as they have after a run.
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _shared(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # Runs of one picture differ in their seeds at least, so no single config describes them all.
    first = configs[0]
    return {key: first[key] for key in first if all(one.get(key) == first[key] for one in configs)}
