"""Runs that differ in their seed alone, and the one curve that they become."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parllel.cli.find_runs import json_of, state_of
from parllel.pictures import Curve, curve_with_band
from parllel.runs import RunFolder

_SEED_IN_NAME = re.compile(r"[-_.]?seed[-_=]?\d+", re.IGNORECASE)
# Keys that say how long a run lasts: to be resumed with another value makes it no other experiment.
_LENGTHS = ("n_steps", "target_return")
# What a curve that ends before the others of its group does from there on.
_CARRIED_ON = {"solved": "was solved", "ended": "was ended by a callback"}
_LEFT_OUT = {"failed": "failed", "stopped": "was stopped", "running": "is still running"}


@dataclass(frozen=True)
class Member:
    """A run of a group: where it is, what it logged, and how it stands, as `state_of` says it."""

    path: Path
    curve: Curve
    state: str

    @property
    def end(self) -> float:
        """The last step that it logged."""
        return self.curve[-1][0]


def key_of(path: Path, by: str) -> str:
    """Return what the runs of one group have in common.

    by: "config": the build function, and the config that they began with but for `seed`; what a resume made
        of `n_steps` and `target_return` does not count. "name": the path without the seed and its number.
        "run": each is a group of its own.
    """
    if by == "run":
        return str(path.resolve())
    if by == "name":
        return str(path.resolve().parent / without_seed(path.name))
    config, record = json_of(path / "config.json"), json_of(path / "run.json")
    record = record if isinstance(record, dict) else {}
    if isinstance(config, dict):
        _take_back_lengths(config, record.get("history"))
        config.pop("seed", None)
    return json.dumps([record.get("build"), config], sort_keys=True)


def _take_back_lengths(config: dict[str, Any], history: Any) -> None:
    for entry in reversed(history if isinstance(history, list) else []):
        for path, value in dict(entry.get("before") or {}).items():
            *groups, last = path.split(".")
            within: Any = config
            for group in groups:
                within = within.get(group) if isinstance(within, dict) else None
            if last in _LENGTHS and isinstance(within, dict):
                within[last] = value


def without_seed(name: str) -> str:
    """Return the name of a run without its seed: `ppo-seed3` and `ppo-seed3-2` are `ppo` and `ppo-2`."""
    return _SEED_IN_NAME.sub("", name) or name


def member(path: Path, curve: Curve) -> Member:
    """Return a run with its state; one whose record cannot be read has failed."""
    try:
        folder = RunFolder.open(path)
        state = state_of(folder, folder.read_record())
    except (OSError, ValueError, KeyError, TypeError):
        state = "failed"
    return Member(path, curve, state)


def join(members: Sequence[Member]) -> tuple[Curve, int, list[str]]:
    """Return the mean of several runs with its band, of how many runs it is, and what was done to them.

    It reaches as far as the runs that did all of their steps. Without any of those it reaches as far as the
    others got, but for such as did not get half as far as the longest. A run that was solved earlier, or that
    a callback ended, goes on with its last value; one that failed, was stopped or is running is left out.
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
                f"carried on: {run.path}: {what} {at}; it keeps its last value to {end:,.0f}"
            )
        else:
            what = _LEFT_OUT.get(run.state, "ended")
            remarks.append(f"left out: {run.path}: {what} {at}; the others reach {end:,.0f}")
    longest = max(members, key=lambda run: run.end)
    if longest.end > end:
        remarks.append(
            f"cut at step {end:,.0f}, which all reach: {longest.path} reaches {longest.end:,.0f}"
        )
    return curve_with_band(curves), len(curves), remarks  # which ends where the first of them ends


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
    """Return the smallest of those that are half of the largest or more; nothing if there is none."""
    far = [end for end in ends if 2 * end >= max(ends)]
    return [min(far)] if far else []


def groups_of(found: Mapping[Path, Curve], by: str) -> dict[str, list[Path]]:
    """Return the runs that belong together."""
    groups: dict[str, list[Path]] = {}
    for path in found:
        groups.setdefault(key_of(path, by), []).append(path)
    return groups
