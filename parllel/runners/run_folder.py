"""The folder of a run: enough to know, later, what was run and what came of it."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from parllel.seeding import Seeds

PACKAGES = ("parllel", "numpy", "numba", "gymnasium", "torch")


class RunFolder:
    """A new folder `base/name`, or with a number behind the name if that exists.

    Args:
        base: folder of all runs; made if needed.
        name: of this run; default the date and time.

    Raises:
        OSError: if the folder cannot be made or written to; the message names it.
    """

    def __init__(self, base: str | os.PathLike[str], name: str | None = None) -> None:
        name = name or datetime.now().strftime("%Y-%m-%d-%H%M%S")
        # By itself: a base that is a dangling link is said to exist, as a taken name is.
        Path(base).mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            path = Path(base) / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
        self.path = path

    def write_start(self, config: Any, seeds: Seeds) -> None:
        """Write config.json, seeds.json and versions.json.

        config: a dataclass or a dict of JSON values; others are written as their repr.
        """
        if dataclasses.is_dataclass(config) and not isinstance(config, type):
            config = dataclasses.asdict(config)
        self._write("config.json", config)
        self._write("versions.json", versions())
        seeds.save(self.path / "seeds.json")

    def _write(self, name: str, value: Any) -> None:
        (self.path / name).write_text(json.dumps(value, indent=2, default=repr) + "\n")

    @property
    def checkpoint(self) -> Path:
        """Where the runner saves its state."""
        return self.path / "checkpoint.zip"

    @property
    def learning_curve(self) -> Path:
        """Where the runner draws the returns."""
        return self.path / "learning_curve.png"


def versions() -> dict[str, str]:
    """Return the versions of Python, the system and the packages that matter, and the command."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    found["command"] = " ".join(sys.argv)
    return found
