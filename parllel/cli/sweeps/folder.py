"""The folder of a sweep.

sweep.json      script of the sweep, and its keys or its study
lock            held by the sweep that uses the folder
NAME/           folder of a run, such as ppo.learning_rate=0.0001,seed=3
logs/NAME.log   standard output and standard error of that run
results.json, results.txt, curves.png      written at the end
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parllel.cli.seed_groups import json_of
from parllel.cli.sweeps.settings import RunSettings, value_at
from parllel.logging.files import replaced_file
from parllel.runs.config import key_paths
from parllel.runs.run_folder import RunFolder, run_state
from parllel.runs.run_lock import hold_lock
from parllel.runs.run_record import now

ENDED = ("finished", "solved", "ended")  # states of runs that are not continued
PRUNED = "pruned"  # state of a run that Optuna's pruner has ended


class SweepFolder:
    """Paths of a sweep.

    path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, name: str) -> Path:
        """Return the path of a run's folder."""
        return self.path / name

    def log(self, name: str) -> Path:
        """Return the path of a run's log."""
        return self.path / "logs" / f"{name}.log"

    @contextmanager
    def held(self, sweep: Mapping[str, Any]) -> Iterator[None]:
        """Create or open the folder, and lock it against other sweeps.

        sweep: what must not change when the sweep is continued, as JSON values: its script, for example.

        Raises:
            WrongStateError: if another process uses the folder.
            ValueError: if the folder is another sweep's, or holds other files.
            OSError: if it cannot be written.
        """
        self._check_content()
        self.path.mkdir(parents=True, exist_ok=True)
        with hold_lock(self.path / "lock", "sweep"):
            self._claim(sweep)
            (self.path / "logs").mkdir(exist_ok=True)
            yield

    def _check_content(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path}: expected the folder of a sweep, got a file")
        if not self.path.exists() or (self.path / "sweep.json").is_file():
            return
        # A process that was killed at the start leaves these.
        others = [path.name for path in self.path.iterdir() if path.name != "lock"]
        if any(not name.endswith(".tmp") for name in others):
            raise ValueError(
                f"{self.path}: is not empty and not the folder of a sweep; name another one with --into"
            )

    def _claim(self, wanted: Mapping[str, Any]) -> None:
        file = self.path / "sweep.json"
        if not file.is_file():
            self.write_json("sweep.json", {**wanted, "created": now(), "command": sys.orig_argv})
            return
        held = json_of(file)
        if not isinstance(held, dict):
            raise ValueError(f"{file}: damaged: expected a dict")
        for key, value in wanted.items():
            if held.get(key) != value:
                raise ValueError(
                    f"{self.path}: is the folder of another sweep, with the {key} {_text(held.get(key))} "
                    f"instead of {_text(value)}; name another one with --into"
                )

    def check_runs(self, runs: Sequence[RunSettings]) -> None:
        """Check that the runs in the folder have the configs of the sweep.

        Raises:
            ValueError: for a run with another config. The message names the run and the key.
        """
        for run in runs:
            path = self.run(run.name)
            config = json_of(path / "config.json") if (path / "run.json").is_file() else None
            if not isinstance(config, dict) or config == run.config:
                continue
            for key in dict.fromkeys([*key_paths(run.config), *key_paths(config)]):
                ours, others = value_at(run.config, key), value_at(config, key)
                if ours != others and not isinstance(ours, dict):
                    raise ValueError(
                        f"{path}: was trained with {key}={_text(others)} instead of {_text(ours)}; "
                        "remove this folder, or name another one with --into"
                    )

    def state(self, name: str) -> str:
        """Return the state of a run: one of `run_state`, "damaged", or "waiting" if it has not begun."""
        path = self.run(name)
        if not (path / "run.json").is_file():
            return "waiting"
        try:
            folder = RunFolder.open(path)
            return run_state(folder, folder.read_record())
        except (OSError, ValueError, KeyError, TypeError):
            return "damaged"

    def write_json(self, name: str, values: Any) -> None:
        """Write a JSON file atomically."""
        with replaced_file(self.path / name) as file:
            file.write((json.dumps(values, indent=2) + "\n").encode())


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={text}" for key, text in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)
