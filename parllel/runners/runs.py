"""Runs in folders: train, resume, repeat and rebuild."""

from __future__ import annotations

import csv
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console

from parllel.errors import add_note
from parllel.pictures.learning_curve import read_curve
from parllel.runners.runner import Runner
from parllel.runners.saved_parts import REPLAY
from parllel.runners.stop_signals import stop_named
from parllel.runners.user_errors import within_training
from parllel.runs.config import config_values, read_config
from parllel.runs.reference import check_not_importing
from parllel.runs.run_folder import RunFolder, versions
from parllel.runs.run_record import RunRecord
from parllel.runs.run_result import RunResult
from parllel.types import State

# Builds a runner from config, stack (for resources to close), folder and console.
Build: TypeAlias = Callable[[Any, ExitStack, RunFolder, Console | None], Runner]
Changes: TypeAlias = Mapping[str, Any]


def train(
    build: Build,
    config: Any,
    *,
    base: str | os.PathLike[str],
    name: str | None = None,
    console: Console | None = None,
) -> tuple[RunResult, RunFolder]:
    """Train a run in a new folder and return the result.

    Args:
        build: builds the runner. It must be a top-level function of a module or script for the run to be
            resumable from its folder alone.
        config: a dataclass object or a dict of JSON values; see `read_config`. `build` receives the
            values as read back from JSON, as in a resumed run: in a dict, tuples become lists and
            paths become strings.
        base, name: parent and name of the folder; see RunFolder.
        console: console to pass to `build`.

    Raises:
        TypeError, ValueError: if the config cannot be read back from JSON.
        OSError: if the folder cannot be written.
        Exception: any error of `build` or of the training. If `build` raises, the folder is
            removed.
    """
    check_not_importing("train")
    # A config that cannot be read back is rejected now rather than on resume.
    values = config_values(config)
    if isinstance(config, Mapping):
        read_config(config, values)
        config = values
    else:
        config = read_config(type(config), values)
    return _train(build, config, RunFolder(base, name), console, repeats=None)


def _train(
    build: Build, config: Any, folder: RunFolder, console: Console | None, repeats: Path | None
) -> tuple[RunResult, RunFolder]:
    runner = None
    try:
        # Locked before run.json is written, from when on others could resume the run.
        with folder.lock(), ExitStack() as stack:
            folder.write_record(build, config, repeats)
            with stop_named("the run was being put together: nothing was trained"):
                runner = build(config, stack, folder, console)
            result = _run(runner, folder)
    except BaseException:
        if runner is None:  # an empty folder is of no use
            folder.remove()
        raise
    return result, folder


def resume(
    path: str | os.PathLike[str],
    *,
    changes: Changes | None = None,
    console: Console | None = None,
    build: Build | None = None,
    config_class: type | None = None,
) -> tuple[RunResult, RunFolder]:
    """Continue a run from its newest checkpoint, in its own folder.

    Unless `build` and `config_class` are given, this executes the script or module named in the
    folder, wherever it is located.

    Rows logged after the checkpoint are dropped. A run without a checkpoint starts over. A run that
    has finished is left unchanged unless `changes` are given (more steps, for example).

    Args:
        path: path of the run's folder.
        changes: changes of the config, as for `change_config`. They are recorded in the folder.
        console: console to pass to the build function.
        build, config_class: build function and config class. They default to those named in the
            folder; otherwise they are recorded there.

    Raises:
        FileNotFoundError: if the folder, or the file of the build function, does not exist.
        ValueError: if the folder is damaged or does not belong to a training run, the build
            function cannot be found by its name, no checkpoint is readable, or the newest
            checkpoint does not fit the run.
        WrongStateError: if another process is using the run.
        ValueError, TypeError: for invalid changes.
    """
    check_not_importing("resume")
    folder = RunFolder.open(path)
    with folder.lock():
        record = _training_record(folder)
        found = _newest(folder)
        if record.outcome is not None and _has_ended(record.outcome) and not changes:
            result = _ended_result(record.outcome, found)
            said = f"{path} had ended after {result.elapsed_steps:,} steps: nothing to do."
            _say(console, said + _resume_hint(folder, record, result))
            return result, folder
        config, made = _config_and_build(record, changes, build, config_class)
        with ExitStack() as stack:
            with stop_named("the run was being put together: it stays as it was"):
                runner = made(config, stack, folder, console)
            step = _go_back(runner, folder, record, found)
            del found  # the state may be large, and the run long
            folder.note_resume(step, changes or {}, config, build)
            result = _run(runner, folder)
    return result, folder


def repeat(
    path: str | os.PathLike[str],
    *,
    changes: Changes | None = None,
    base: str | os.PathLike[str] | None = None,
    name: str | None = None,
    console: Console | None = None,
    build: Build | None = None,
    config_class: type | None = None,
) -> tuple[RunResult, RunFolder]:
    """Repeat a run in a new folder, with the same config and seed.

    Like `resume`, this executes the script or module named in the folder.

    Args:
        path: folder of the original run.
        changes: changes of the config, as for `change_config`.
        base: parent of the new folder; defaults to the parent of the original.
        name: name of the new folder; defaults to the original's name with a number.
        console: console to pass to the build function.
        build, config_class: build function and config class; default to those named in the
            original's folder.

    Raises the errors of `resume` that concern the folder, the build function and the changes.
    """
    check_not_importing("repeat")
    other = RunFolder.open(path)
    config, build = _config_and_build(_training_record(other), changes, build, config_class)
    whole = other.path.resolve()
    folder = RunFolder(whole.parent if base is None else base, name or whole.name)
    return _train(build, config, folder, console, repeats=whole)


def rebuild(
    path: str | os.PathLike[str],
    stack: ExitStack,
    *,
    best: bool = False,
    changes: Changes | None = None,
    console: Console | None = None,
    build: Build | None = None,
    config_class: type | None = None,
) -> Runner:
    """Rebuild a run with its newest checkpoint loaded, for inspection.

    Like `resume`, this executes the script or module named in the folder. The folder is not
    changed, and another process may be using it. The returned runner writes to a temporary folder,
    which the stack removes. The replay of an off-policy run stays empty, because it may be large.

    Args:
        path: path of the run's folder.
        stack: exit stack on which the resources to close are registered.
        best: whether to load the checkpoint of the best evaluation instead of the newest.
        changes, console, build, config_class: as for `resume`.

    Raises the errors of `resume`, and FileNotFoundError if there is no such checkpoint.
    """
    folder = RunFolder.open(path)
    config, build = _config_and_build(_training_record(folder), changes, build, config_class)
    warnings: list[str] = []
    checkpoints = folder.best if best else folder.checkpoints
    checkpoint, state = checkpoints.load_newest(warn=warnings.append)
    state.get("parts", {}).pop(REPLAY, None)
    scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="parllel-"))
    temporary = RunFolder(scratch, folder.path.resolve().name, trains=False)
    runner: Runner = build(config, stack, temporary, console)
    _load(runner, checkpoint, state)
    for warning in warnings:
        runner.logger.warn(warning)
    return runner


# ---------------------------------------------------------------------- helpers


def _training_record(folder: RunFolder) -> RunRecord:
    record = folder.read_record()
    record.source()  # raises for another kind, which not even a given build function makes a training run
    return record


def _config_and_build(
    record: RunRecord, changes: Changes | None, build: Build | None, config_class: type | None
) -> tuple[Any, Build]:
    return record.read_config(changes, config_class), build or record.build()


def _newest(folder: RunFolder) -> tuple[Path | None, State, list[str]]:
    """Return path and state of the newest checkpoint, or None and an empty state, and warnings."""
    warnings: list[str] = []
    try:
        checkpoint, state = folder.checkpoints.load_newest(warn=warnings.append)
    except FileNotFoundError:
        return None, {}, warnings
    return checkpoint, state, warnings


def _go_back(
    runner: Runner,
    folder: RunFolder,
    record: RunRecord,
    found: tuple[Path | None, State, list[str]],
) -> int:
    """Load the checkpoint into the runner, log it, and return its step."""
    checkpoint, state, warnings = found
    changed, reached = _other_versions(folder), _steps_reached(folder, record)
    if checkpoint is not None:
        _load(runner, checkpoint, state)
    # Only when the checkpoint fits, as this changes files; before the first message, which it would drop.
    runner.logger.rewind(-1 if checkpoint is None else runner.result.elapsed_steps)
    for warning in warnings:
        runner.logger.warn(warning)
    for change in changed:
        runner.logger.notice(f"since this run began: {change}")
    step = runner.result.elapsed_steps
    said = "there is no checkpoint" if checkpoint is None else f"going on from {checkpoint.name}"
    if step == 0:
        again = f", and all {reached:,} environment steps are done again" if reached else ""
        runner.logger.warn(f"{said}: the run starts from the beginning{again}")
    else:
        again = f"; those after it, up to {reached:,}, are done again" if reached > step else ""
        runner.logger.notice(f"{said}, at {step:,} environment steps{again}")
    return step


def _steps_reached(folder: RunFolder, record: RunRecord) -> int:
    """Return the last step that the files of the run mention."""
    reached = int((record.outcome or {}).get("elapsed_steps", 0))
    try:
        logged = read_curve(folder.path / "progress.csv", "step")
    except (OSError, ValueError, IndexError, csv.Error):  # another logger, or damage
        logged = []
    return max([reached, *(int(point[0]) for point in logged)])


def _load(runner: Runner, checkpoint: Path, state: State) -> None:
    try:
        runner.load_state(state)
    except Exception as error:  # parts may raise anything for a state of another shape
        why = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"{checkpoint} does not fit this run: {why}") from error


def _run(runner: Runner, folder: RunFolder) -> RunResult:
    try:
        result = runner.run()
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt):
            # The second Ctrl-C: without an outcome the run would count as one that failed.
            _note_outcome(runner, folder, "SIGINT")
        _name_the_way_on(error, folder)
        raise
    _note_outcome(runner, folder, result.stopped_by)
    return result


def _name_the_way_on(error: BaseException, folder: RunFolder) -> None:
    """Add a note to an error that says how to continue the run, if there is a checkpoint."""
    found = folder.checkpoints.paths()
    if found and within_training(error):
        step = int(found[-1].stem.split("-")[-1])
        at = f"continue from the checkpoint of step {step:,} with: parllel resume {folder.path}"
        add_note(error, at)


def _note_outcome(runner: Runner, folder: RunFolder, stopped_by: str | None) -> None:
    result = runner.result
    return_ = result.evaluation_return
    try:
        folder.note_outcome(
            {
                "elapsed_steps": result.elapsed_steps,
                "evaluation_return": return_ if math.isfinite(return_) else None,
                "solved": result.solved,
                "stopped_by": stopped_by,
            }
        )
    except (OSError, ValueError) as error:
        # The training is saved anyway, so this is not an error, nor may it hide one.
        runner.logger.warn(f"the result of the run could not be recorded: {error}")


def _resume_hint(folder: RunFolder, record: RunRecord, result: RunResult) -> str:
    """Return a sentence on how to extend an ended run, if its config allows it."""
    # A solved run would end again at once, however many steps it is given.
    if result.solved:
        known = "target_return" in record.config
        return " It was solved; a higher target_return continues it." if known else ""
    if "n_steps" not in record.config:
        return ""
    more = 2 * result.elapsed_steps
    return f" More steps continue it, for instance: parllel resume {folder.path} n_steps={more}"


def _has_ended(outcome: Mapping[str, Any]) -> bool:
    return outcome["stopped_by"] is None


def _ended_result(
    outcome: Mapping[str, Any], found: tuple[Path | None, State, list[str]]
) -> RunResult:
    return_ = outcome["evaluation_return"]
    result = RunResult(
        elapsed_steps=int(outcome["elapsed_steps"]),
        evaluation_return=math.nan if return_ is None else float(return_),
        solved=bool(outcome["solved"]),
    )
    result.load_curves(found[1])
    return result


def _other_versions(folder: RunFolder) -> list[str]:
    """Return lines that name packages whose version has changed since the run began."""
    then, now = folder.read_versions(), versions()
    return [
        f"{name} {then[name]} has become {now.get(name, 'missing')}"
        for name in then
        if name != "command" and then[name] != now.get(name)
    ]


def _say(console: Console | None, text: str) -> None:
    if console is not None:
        console.print(text, soft_wrap=True, markup=False, highlight=False)
