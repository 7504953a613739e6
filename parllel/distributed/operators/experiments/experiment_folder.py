"""Folder of an experiment: configuration, telemetry, results.

config.json versions.json run.json    as in every run folder; the kind is `experiment`
telemetry/                            <name>_<operator>_steps.jsonl, <name>_<operator>_episodes.jsonl
logs/                                 standard error of each worker
results.json results.png              means, intervals, differences, and a chart of them
videos/                               on request
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from parllel.distributed.operators.experiments.earlier_part import changed_settings
from parllel.distributed.operators.experiments.episode_outcome import MIN_UNDERSTOOD
from parllel.distributed.operators.experiments.film import Film
from parllel.distributed.operators.experiments.results import (
    GroupResult,
    Price,
    Source,
    results_as_json,
    results_of,
)
from parllel.distributed.operators.experiments.results_report import draw_results
from parllel.distributed.operators.experiments.telemetry import EPISODES
from parllel.logging.files import replaced_file
from parllel.runs.run_folder import RunFolder
from parllel.runs.run_record import RunRecord

KIND = "experiment"


class ExperimentFolder:
    """Run folder of an experiment, locked while used in `with`.

    Args:
        base: folder in which the run folder is created. It has the experiment's name, with a number
            if that name is taken.
        values: the experiment as JSON values.
        script: file that defines the experiment. It is recorded with the git state of its folder.
        resume: folder of an earlier part of the experiment, used instead of a new one.

    Raises:
        FileNotFoundError, ValueError: if `resume` is not the folder of an experiment; on entering,
            if its settings differ. The message names each setting that differs.
        WrongStateError: on entering, if another process uses the folder.
        OSError: if the folder cannot be created or written.
    """

    def __init__(
        self,
        base: str | os.PathLike[str],
        values: Mapping[str, Any],
        script: str | os.PathLike[str] | None = None,
        resume: str | os.PathLike[str] | None = None,
    ) -> None:
        script = None if script is None else Path(script).resolve()
        self._values = {**values, "script": None if script is None else str(script)}
        self._source = None if script is None else script.parent
        self._resumes = resume is not None
        if resume is None:
            self._run = RunFolder(base, str(values["name"]))
        else:
            open_experiment(resume)
            self._run = RunFolder.open(resume)
        self.path = self._run.path
        self.telemetry = self.path / "telemetry"
        self._held = ExitStack()

    def __enter__(self) -> ExperimentFolder:
        # Locked before it is checked or written: two processes may resume the same folder.
        self._held.enter_context(self._run.lock())
        if self._resumes:
            try:
                self._check_resumed()
            except BaseException:
                self._held.close()
                raise
            return self
        try:
            self._run.write_record(None, self._values, kind=KIND, source=self._source)
        except BaseException:
            self._held.close()
            self._run.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.close()

    def _check_resumed(self) -> None:
        # In the form read from a file: tuples have become lists there, for example.
        now = json.loads(json.dumps(self._values, default=str))
        changed = changed_settings(self._run.read_record().config, now)
        if changed:
            raise ValueError(
                f"{self.path}: cannot be resumed with other settings: {'; '.join(changed)}. "
                "Restore these settings, or start a new experiment"
            )

    def note_resume(self, n_done: int) -> None:
        """Record that the experiment continues after `n_done` episodes."""
        budget = self._values.get("budget")
        changed = self._run.read_record().config.get("budget") != budget
        self._run.note_resume(n_done, {"budget": budget} if changed else {}, self._values)

    def run_id(self, operator_id: str) -> str:
        """Return the run id of an operator's telemetry and log."""
        return run_id_of(self._values, operator_id)

    def conclude(
        self,
        stopped_by: str | None,
        film: Film,
        n_steps: int,
        *,
        draws: bool = True,
        spent: Mapping[str, float] | None = None,
    ) -> tuple[tuple[GroupResult, ...], tuple[str, ...], tuple[str, ...]]:
        """Compute, draw and write the results of the experiment.

        draws: whether to draw results.png.
        spent: totals of tokens, calls and cost; None without a budget.

        Returns the results, a sentence for each operator that failed, and notes on what could not be drawn.
        """
        groups = read_results(self.path, self._values)
        results = {"results": results_as_json(groups)}
        write_json(self.path / "results.json", results)
        failures = failures_of(groups, stopped=stopped_by is not None)
        self._run.note_outcome(
            {
                "stopped_by": stopped_by,
                "steps": n_steps,
                "episodes": sum(result.ended for group in groups for result in group.operators),
                "failed": sum(result.failed for group in groups for result in group.operators),
                "spent": spent,
            }
        )
        # Drawing comes last: if it fails, everything else has been written.
        notes = []
        try:
            if draws:
                draw_results(self.path / "results.png", groups)
        except ImportError as error:
            notes.append(f"no chart: {error}")
        notes += film.write(self.path / "videos")
        return tuple(groups), failures, tuple(notes)


def write_json(path: Path, values: Any) -> None:
    """Write indented JSON to a file, replacing its content."""
    with replaced_file(path) as file:
        file.write((json.dumps(values, indent=2) + "\n").encode())


def unfinished_part(
    base: str | os.PathLike[str], values: Mapping[str, Any]
) -> tuple[Path, int] | None:
    """Return the newest unfinished folder of an experiment with these settings.

    Returns:
        The folder and its number of episode records, or None if there is no such folder that is not
        in use.
    """
    now = json.loads(json.dumps(values, default=str))
    found = []
    for path in Path(base).glob(f"{values['name']}*/run.json"):
        try:
            run = RunFolder.open(path.parent)
            record = run.read_record()
            if record.kind != KIND or changed_settings(record.config, now):
                continue
            if not run.in_use and (record.outcome is None or record.outcome.get("stopped_by")):
                episodes = (path.parent / "telemetry").glob(f"*_{EPISODES}.jsonl")
                n = sum(file.read_bytes().count(b"\n") for file in episodes)
                found.append((record.created, path.parent, n))
        except (OSError, ValueError):  # another kind of folder, or damaged: no reason not to start
            continue
    return max(found)[1:] if found else None


def read_results(folder: Path, values: Mapping[str, Any]) -> list[GroupResult]:
    """Return the results of the telemetry in a folder. Episodes not played are left out.

    Raises:
        ValueError: if telemetry or the record of the experiment is damaged.
    """
    sources = sources_of(folder, values)
    return results_of(
        folder / "telemetry",
        sources,
        values.get("comparisons", "first"),
        values.get("min_understood", MIN_UNDERSTOOD),
    )


def sources_of(folder: Path, values: Mapping[str, Any]) -> list[Source]:
    """Return where the episodes of each operator and game of an experiment are recorded.

    Raises:
        ValueError: if the record of the experiment is damaged.
    """
    try:
        return [_source(values, operator) for operator in values["operators"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{folder / 'config.json'}: damaged: {type(error).__name__}: {error}"
        ) from error


def open_experiment(path: str | os.PathLike[str]) -> RunRecord:
    """Return the record of an experiment's folder.

    Raises:
        FileNotFoundError: if there is no record.
        ValueError: if the record is of another kind, or damaged.
    """
    record = RunFolder.open(path).read_record()
    if record.kind != KIND:
        raise ValueError(
            f"{path}: expected the folder of an experiment, got a run of kind {record.kind!r}"
        )
    return record


def run_id_of(values: Mapping[str, Any], operator_id: str) -> str:
    """Return the run id of an operator's or game's telemetry."""
    return f"{values['name']}_{operator_id}"


def failures_of(groups: list[GroupResult], *, stopped: bool) -> tuple[str, ...]:
    """Return one sentence for each operator with failed or missing episodes."""
    found = []
    for group in groups:
        for result in group.operators:
            missing = 0 if stopped else result.asked - result.ended - result.failed
            if result.failed or missing:
                left = f", and {missing} not played" if missing else ""
                first, *others = result.failures or ("nothing was played",)
                n_others = f"{len(others)} other failure{'s' * (len(others) > 1)}"
                more = f" (and {n_others})" if others else ""
                found.append(
                    f"{result.operator_id} ({group.label}): {result.failed} of {result.asked} episodes failed"
                    f"{left}: {first}{more}"
                )
    return tuple(found)


def _source(values: Mapping[str, Any], operator: Mapping[str, Any]) -> Source:
    name, env_id = operator["operator_id"], operator["env_id"]
    episodes = None if values["episodes"] is None else int(values["episodes"])
    players = operator.get("players")
    configs = [operator] if players is None else list(players.values())
    prices = {
        config["operator_id"]: price
        for config in configs
        if (price := Price.of(config.get("settings") or {})) is not None
    }
    if players is not None:
        ids = tuple(player["operator_id"] for player in players.values())
        rotates = operator.get("seats") == "rotate"
        n = episodes * len(players) if rotates and episodes is not None else episodes
        return Source(f"{name} ({env_id})", ids, run_id_of(values, name), n, prices)
    group = str(env_id)
    # With other arguments it is a different environment, whose returns are not compared.
    if operator.get("env_kwargs"):
        group = f"{env_id} {json.dumps(operator['env_kwargs'], sort_keys=True)}"
    return Source(group, (name,), run_id_of(values, name), episodes, prices)
