"""The folder of a run: its record, outcome and checkpoints."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from parllel.logging.files import replaced_file
from parllel.runs.checkpoints import Checkpoints
from parllel.runs.config import config_values
from parllel.runs.reference import reference_to
from parllel.runs.run_lock import hold_lock, lock_is_held
from parllel.runs.run_record import (
    TRAINING,
    RunRecord,
    describe_run,
    git_state,
    now,
    places_of,
    read_record,
)
from parllel.seeding import Seeds
from parllel.version import __version__

# Packages that results depend on: numerical libraries and environments.
PACKAGES = (
    *("numpy", "numba", "gymnasium", "torch", "jax", "optax"),
    *("mujoco", "ale-py", "minigrid", "pettingzoo", "mpe2"),
)
# A larger difference is hardly code.
LARGEST_DIFFERENCE = 1_000_000  # bytes


class RunFolder:
    """A new folder `base/name`, with a number after the name if it already exists.

    Args:
        base: folder of all runs; created if needed.
        name: name of this run; defaults to the date and time.
        trains: whether the run trains, see below.

    Attributes:
        path: path of the folder.
        trains: False for the temporary folder of a run that is rebuilt for inspection or for its policy
            (`rebuild`, `load_policy`). Parts needed only for training, such as a cluster, may be omitted.

    Raises:
        OSError: if the folder cannot be created or written to. The message names the folder.
    """

    def __init__(
        self, base: str | os.PathLike[str], name: str | None = None, *, trains: bool = True
    ) -> None:
        name = name or datetime.now().strftime("%Y-%m-%d-%H%M%S")
        base = Path(base)
        self._made = [folder for folder in (base, *base.parents) if not folder.exists()]
        # Apart from the run's folder: for a dangling link as base mkdir would say that it exists, and the
        # loop would take that for a taken name.
        base.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            path = base / (name if number == 1 else f"{name}-{number}")
            try:
                # mkdir decides: a name that was free when asked for could be taken before it is made.
                path.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
        self.path, self.trains = path, trains

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Return the folder of an existing run.

        Raises:
            FileNotFoundError: if there is no such folder.
            ValueError: if it is not a run folder.
        """
        # Bypasses `__init__`, which creates a new folder.
        folder = cls.__new__(cls)
        folder.path, folder.trains, folder._made = Path(path), True, []
        if folder.path.is_file():
            raise ValueError(f"{path}: expected the folder of a run, got a file")
        if not folder.path.is_dir():
            raise FileNotFoundError(f"{path}: there is no such folder")
        if not (folder.path / "run.json").is_file():
            raise ValueError(f"{path}: not the folder of a run, because it has no run.json")
        return folder

    def remove(self) -> None:
        """Remove the folder with its contents, and any empty parent folders that were created with it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # others may have runs there by now
            for folder in self._made:
                folder.rmdir()

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """Checkpoints from which the run can be resumed."""
        # One object, as the runner sets how many it keeps.
        return Checkpoints(self.path / "checkpoints")

    @cached_property
    def best(self) -> Checkpoints:
        """The checkpoint of the best evaluation."""
        return Checkpoints(self.path / "best", keep=1)

    @property
    def learning_curve(self) -> Path:
        """Path of the runner's plot of returns."""
        return self.path / "learning_curve.png"

    def lock(self) -> AbstractContextManager[None]:
        """Return a context manager that locks the run against other processes.

        Raises:
            WrongStateError: if another process uses the run.
        """
        return hold_lock(self.path / "lock")

    @property
    def in_use(self) -> bool:
        """Whether a process holds the lock of the run."""
        return lock_is_held(self.path / "lock")

    # ------------------------------------------------------------------ what was run

    def write_record(
        self,
        build: Any,
        config: Any,
        repeats: str | os.PathLike[str] | None = None,
        *,
        kind: str = TRAINING,
        source: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write config.json, versions.json and run.json, and git.diff if the source has changes.

        Hold `lock()` from before this call to the end of the run: a run that is not locked counts as failed
        until `note_outcome` is called.

        Args:
            build: the function that builds the run. If it cannot be found again by its name, the
                record says so. None for a run that is not of the kind "training".
            config: a dataclass object or a dict.
            repeats: folder of the run that this one repeats.
            kind: kind of the run, one lower-case word.
            source: folder whose git state is recorded; defaults to the folder of the build
                function's file.

        Raises:
            TypeError: if the config holds a value that JSON cannot represent.
            ValueError: if the kind is not one lower-case word, or does not fit the build function.
            OSError: if something cannot be written.
        """
        values = config_values(config)
        record = describe_run(kind, build, config, repeats)
        file = (record["build"] or {}).get("file")
        if source is None and file is not None:
            source = Path(file).parent
        if source is not None:
            record["git"], difference = git_state(Path(source))
            if 0 < len(difference) <= LARGEST_DIFFERENCE:
                with replaced_file(self.path / "git.diff") as diff:
                    diff.write(difference)
        self._write("config.json", values)
        self._write("versions.json", versions())
        self._write("run.json", record)  # last: with it this is the folder of a run

    def read_record(self) -> RunRecord:
        """Read run.json and config.json.

        Raises:
            ValueError: if one of the files is damaged. The message names it.
            OSError: if one of the files cannot be read.
        """
        config = self._read("config.json")
        record = self._read("run.json")
        try:
            return read_record(self.path, record, config)
        except (KeyError, TypeError) as error:
            path = self.path / "run.json"
            raise ValueError(f"{path}: damaged: {type(error).__name__}: {error}") from error

    def read_versions(self) -> dict[str, str]:
        """Read versions.json. Raises the errors of `read_record`."""
        return {name: str(version) for name, version in self._read("versions.json").items()}

    def write_seeds(self, seeds: Seeds) -> None:
        """Write seeds.json."""
        self._write("seeds.json", seeds.state())

    def write_allocators(self, description: Mapping[str, Any]) -> None:
        """Write allocators.json, the description of the buffer from `describe_arrays`."""
        self._write("allocators.json", description)

    # ------------------------------------------------------------------ outcome

    def note_resume(
        self, step: int, changes: Mapping[str, Any], config: Any, build: Any = None
    ) -> None:
        """Record a resume: its step, config changes and source.

        build: the function that builds the run, if it differs from the one in run.json. It is
            recorded if it can be found by its name.
        """
        record = self._read("run.json")
        if build is not None and reference_to(build).problem is None:
            record.update(places_of(build, config))
        file = (record["build"] or {}).get("file")
        git = None if file is None else git_state(Path(file).parent)[0]
        old = self._read("config.json")
        before = {path: _value_at(old, path) for path in changes}
        entry = {
            "time": now(),
            "step": step,
            "changes": dict(changes),
            "before": before,
            "git": git,
        }
        # Clear the outcome, so that the run counts as running until it ends again.
        record.update(history=[*record["history"], entry], outcome=None)
        if changes:
            self._write("config.json", config_values(config))
        self._write("run.json", record)

    def note_outcome(self, outcome: Mapping[str, Any]) -> None:
        """Record the outcome, see RunRecord. Runs of any other kind may record arbitrary entries."""
        record = self._read("run.json")
        self._write("run.json", {**record, "outcome": {"ended": now(), **outcome}})

    def _read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(f"{path}: missing, so the run cannot be read") from None
        except ValueError as error:
            raise ValueError(f"{path}: damaged: {error}") from error
        if not isinstance(values, dict):
            raise ValueError(f"{path}: damaged: expected a dict, got {values!r}")
        return values

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        """Write JSON atomically."""
        # `default=str`, because changes of a config may hold paths.
        text = json.dumps(values, indent=2, default=str) + "\n"
        with replaced_file(self.path / name) as file:
            file.write(text.encode())


def find_runs(folder: Path) -> list[Path]:
    """Return all folders that contain a `run.json`, sorted: `folder` itself, or the ones below it.

    The inside of a run's folder is not searched, and links are not followed.

    Raises:
        FileNotFoundError: if the folder does not exist.
        NotADirectoryError: if `folder` is a file.
    """
    if folder.is_file():
        raise NotADirectoryError(f"{folder}: expected a folder, got a file")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    found = []
    for path, folders, files in os.walk(folder):
        if "run.json" in files:
            found.append(Path(path))
            folders.clear()  # do not descend into videos and checkpoints, often many files
        folders.sort()
    return found


def run_state(folder: RunFolder, record: RunRecord) -> str:
    """Return the state of a run.

    The state is "running"; "finished" if all steps were done; "solved" if the run reached its
    target; "ended" if a callback ended it; "stopped" if a signal did; or "failed" if it raised an
    exception or was killed. Only a training run can be "solved".
    """
    if folder.in_use:  # first: a resumed run still has the outcome of its last part
        return "running"
    # There is no outcome if an error or a kill ended the process before writing it.
    outcome = record.outcome
    if outcome is None:
        return "failed"
    if record.kind != TRAINING:
        outcome = {"stopped_by": None, "solved": False, **outcome}
    if outcome["stopped_by"]:
        return "stopped" if outcome["stopped_by"] in signal.Signals.__members__ else "ended"
    return "solved" if outcome["solved"] else "finished"


def versions() -> dict[str, str]:
    """Return the versions of Python, the system and PACKAGES, and the command line."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    # Not from package metadata, where the name may belong to another project.
    found["parllel"] = __version__
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    found["command"] = " ".join(sys.argv)
    return found


def _value_at(values: Any, path: str) -> Any:
    for name in path.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values
