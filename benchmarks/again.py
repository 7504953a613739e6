"""Figures that were measured again, put beside those that were not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def put_into(path: Path, report: dict[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """Return what `path` holds, with what `report` has in `parts`, lists of named figures, in its place."""
    old: dict[str, Any] = json.loads(path.read_text())
    for part in parts:
        new = {one["name"]: one for one in report[part]}
        old[part] = [new.pop(one["name"], one) for one in old[part]] + list(new.values())
    return old


def check_machine(path: Path, here: dict[str, Any]) -> None:
    """Raise SystemExit unless what `path` holds was measured on this machine, whatever its load was."""
    there = json.loads(path.read_text())["machine"]
    differing = [
        name for name in there if name != "load_average_1min" and there[name] != here.get(name)
    ]
    if differing:
        raise SystemExit(f"--again: {path} is of another machine; {', '.join(differing)} differ")
