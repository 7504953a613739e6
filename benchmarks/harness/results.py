"""Storage of reports, and merging of repeated measurements into existing ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

RESULTS = Path(__file__).resolve().parents[1] / "results"

Report: TypeAlias = dict[str, Any]


def results_of(name: str) -> Path:
    """Return where the committed results of a benchmark are."""
    return RESULTS / f"{name}.json"


def load(name: str) -> Report:
    """Return the committed results of a benchmark."""
    return read(results_of(name))


def read(path: Path) -> Report:
    """Return the report in a file."""
    report: Report = json.loads(path.read_text())
    return report


def write(path: Path, report: Report) -> None:
    """Write a report, into a new folder if need be. If the process is killed, the file has the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(report, indent=1) + "\n")
    unfinished.replace(path)


def put_into(path: Path, report: Report, parts: Sequence[str]) -> Report:
    """Return what `path` holds, with what `report` has in `parts`, lists of named figures, in its place."""
    old = read(path)
    for part in parts:
        new = {one["name"]: one for one in report[part]}
        old[part] = [new.pop(one["name"], one) for one in old[part]] + list(new.values())
    return old


def check_machine(path: Path, here: dict[str, Any]) -> None:
    """Raise SystemExit unless what `path` holds was measured on this machine, whatever its load was."""
    there = read(path)["machine"]
    differing = [
        name for name in there if name != "load_average_1min" and there[name] != here.get(name)
    ]
    if differing:
        raise SystemExit(f"--again: {path} is of another machine; {', '.join(differing)} differ")
