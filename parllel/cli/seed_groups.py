"""Groups of runs that differ only in their seed, and the joint curve of each group."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parllel.pictures.learning_curve import Curve, curve_with_band
from parllel.runs.run_folder import RunFolder, run_state

_SEED_IN_NAME = re.compile(r"[-_.,]?seed[-_=]?\d+", re.IGNORECASE)
# Settings of a run's length: resumed with another value, it remains the same experiment.
_LENGTHS = ("n_steps", "target_return")
# How a run that ends before the others of its group is treated, by its state: its curve is extended with its
# last value, or the run is left out.
_CARRIED_ON = {"solved": "was solved", "ended": "was ended by a callback"}
_LEFT_OUT = {"failed": "failed", "stopped": "was stopped", "running": "is still running"}


@dataclass(frozen=True)
class Member:
    """Run of a group: its folder, its curve, and its state from `run_state`."""

    path: Path
    curve: Curve
    state: str

    @property
    def end(self) -> float:
        """Last step of the curve."""
        return self.curve[-1][0]


def key_of(path: Path, by: str) -> str:
    """Return the key that all runs of a group share.

    by: "config" uses the build function and the config without `seed`, with `n_steps` and `target_return` as
        they were when the run started, before any resume. "name" uses the path without "seed" and its number.
        "run" makes each run a separate group.
    """
    if by == "run":
        return str(path.resolve())
    if by == "name":
        return str(path.resolve().parent / without_seed(path.name))
    config, record = json_of(path / "config.json"), json_of(path / "run.json")
    # A damaged record must not prevent the plot of the other runs.
    record = record if isinstance(record, dict) else {}
    if isinstance(config, dict):
        _restore_lengths(config, record.get("history"))
        config.pop("seed", None)
    return json.dumps([record.get("build"), config], sort_keys=True)


def json_of(path: Path) -> Any:
    """Return the content of a JSON file, or None if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _restore_lengths(config: dict[str, Any], history: Any) -> None:
    # From the last resume to the first, so that the original value is written last.
    for entry in reversed(history if isinstance(history, list) else []):
        for path, value in dict(entry.get("before") or {}).items():
            *groups, last = path.split(".")
            within: Any = config
            for group in groups:
                within = within.get(group) if isinstance(within, dict) else None
            if last in _LENGTHS and isinstance(within, dict):
                within[last] = value


def without_seed(name: str) -> str:
    """Return a run's name without its seed: `ppo-seed3` and `ppo-seed3-2` give `ppo` and `ppo-2`."""
    # A run may be named `seed3`, which would leave nothing.
    return _SEED_IN_NAME.sub("", name) or name


def member(path: Path, curve: Curve) -> Member:
    """Return a run with its state, "failed" if its record cannot be read."""
    try:
        folder = RunFolder.open(path)
        state = run_state(folder, folder.read_record())
    except (OSError, ValueError, KeyError, TypeError):
        state = "failed"
    return Member(path, curve, state)


def join(members: Sequence[Member]) -> tuple[Curve, int, list[str]]:
    """Return the mean curve of several runs with its band, the number of runs in it, and remarks.

    The mean ends where the runs that completed all their steps end. If there are none, it ends where the
    others end, ignoring runs less than half as long as the longest. A run that ends earlier keeps its last
    value to the end if it was solved or a callback ended it; it is left out if it failed, was stopped or is
    still running.
    """
    end = _common_end(members)
    curves: list[Curve] = []
    remarks = []
    for run in members:
        at = f"at step {run.end:,.0f}"
        if run.end >= end:
            curves.append(run.curve)
        elif run.state in _CARRIED_ON:
            curves.append([*run.curve, (end, run.curve[-1][1])])
            what = _CARRIED_ON[run.state]
            remarks.append(
                f"extended: {run.path}: {what} {at}; it keeps its last value to {end:,.0f}"
            )
        else:
            what = _LEFT_OUT.get(run.state, "ended")
            remarks.append(f"left out: {run.path}: {what} {at}; the others reach {end:,.0f}")
    longest = max(members, key=lambda run: run.end)
    if longest.end > end:
        remarks.append(
            f"cut at step {end:,.0f}, which all runs reach: {longest.path} reaches {longest.end:,.0f}"
        )
    return curve_with_band(curves), len(curves), remarks  # cut at the end of the shortest curve


def _common_end(members: Sequence[Member]) -> float:
    finished = _ends(members, ["finished"])
    if finished:
        return min(finished)
    running = _ends(members, ["running"])
    carried = _ends(members, _CARRIED_ON)
    if running or carried:
        return max([*carried, *_shortest_of_most(running)])
    return _shortest_of_most(_ends(members, _LEFT_OUT))[0]


def _ends(members: Iterable[Member], states: Iterable[str]) -> list[float]:
    states = set(states)
    return [run.end for run in members if run.state in states]


def _shortest_of_most(ends: list[float]) -> list[float]:
    """Return a list with the smallest end that is at least half of the largest; [] for no ends."""
    # Otherwise a run that failed at once would cut the curve of its group to nothing.
    far = [end for end in ends if 2 * end >= max(ends)]
    return [min(far)] if far else []


def groups_of(found: Mapping[Path, Curve], by: str) -> dict[str, list[Path]]:
    """Group runs by the key from `key_of`. Returns the runs of each group, keyed by that key."""
    groups: dict[str, list[Path]] = {}
    for path in found:
        groups.setdefault(key_of(path, by), []).append(path)
    return groups
