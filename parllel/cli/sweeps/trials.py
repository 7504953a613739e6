"""Trials of Optuna as a source of runs: parameters from a sampler, bad runs ended by a pruner.

    ask      study --> parameters of the next trial --> run trial-0007
    report   new returns of the run --> study, whose pruner says whether to end it
    tell     last return of the run --> study

The study is in `optuna.log` of the sweep's folder. A trial whose run was interrupted is asked for again with
the same parameters, and continues in the folder of its run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, Trial, TrialState

from parllel.cli.sweeps.folder import ENDED, PRUNED, SweepFolder
from parllel.cli.sweeps.progress import Progress
from parllel.cli.sweeps.scheduler import ScheduledRun
from parllel.cli.sweeps.settings import (
    INTERVAL,
    RUN,
    RunSettings,
    is_seed,
    run_settings,
    split_values,
    text_of,
    value_at,
)
from parllel.runs.config import change_config, config_values

_LENGTH = "n_steps"  # field of a config with the steps of a run
_KEY = "key"  # user attribute of the study: the column of its values
# A user attribute RUN of a trial is the name of its run.
_STATE = "state"  # user attribute of a trial that has ended: the state of its run
_BAD_INTERVAL = re.compile(r"(log|float|int|logint):.*|[^:]+\.\..+")
SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
}
# Called with the steps of a run. By default they would judge returns of the first steps, which say little.
PRUNERS: dict[str, Callable[[int], optuna.pruners.BasePruner]] = {
    "none": lambda n: optuna.pruners.NopPruner(),
    "median": lambda n: optuna.pruners.MedianPruner(n_warmup_steps=n // 4),
    "halving": lambda n: optuna.pruners.SuccessiveHalvingPruner(min_resource=max(1, n // 16)),
    "hyperband": lambda n: optuna.pruners.HyperbandPruner(max(1, n // 27), max(1, n)),
}


def parse_space(
    pairs: Mapping[str, str], config: Any
) -> tuple[dict[str, BaseDistribution], dict[str, str]]:
    """Return the distributions to sample from, and the keys with one value.

    Args:
        pairs: by key, `log:1e-5..1e-3`, `float:0..1`, `int:2..10`, `logint:16..512`, a list of choices,
            or one value.
        config: the config, which decides whether `0-4` is a range.

    Raises:
        ValueError: for an empty interval, bounds that are not numbers, several seeds, or nothing to sample.
    """
    space: dict[str, BaseDistribution] = {}
    fixed: dict[str, str] = {}
    known = config_values(config)
    for key, text in pairs.items():
        match = INTERVAL.fullmatch(text)
        if match is not None:
            space[key] = _interval(key, *match.groups())
            continue
        is_text = isinstance(value_at(known, key), str)
        if _BAD_INTERVAL.fullmatch(text) and not is_text:
            raise ValueError(f"{key}: expected an interval such as log:1e-5..1e-3, got {text!r}")
        values = split_values(key, text, ranges=not is_text)
        if len(values) == 1:
            fixed[key] = values[0]
        elif is_seed(key):
            raise ValueError(f"{key}: expected one value with --optuna, got {text!r}")
        else:
            space[key] = CategoricalDistribution(values)
    if not space:
        raise ValueError(
            "expected at least one key with several values, such as ppo.learning_rate=log:1e-5..1e-3"
        )
    return space, fixed


def _interval(key: str, kind: str, first: str, last: str) -> BaseDistribution:
    try:
        if kind in ("int", "logint"):
            low, high = int(first), int(last)
            if low < high and (kind == "int" or low > 0):
                return IntDistribution(low, high, log=kind == "logint")
        else:
            lowest, highest = float(first), float(last)
            if lowest < highest and (kind == "float" or lowest > 0):
                return FloatDistribution(lowest, highest, log=kind == "log")
    except ValueError:
        pass
    least = " above 0" if kind.startswith("log") else ""
    raise ValueError(
        f"{key}: expected {kind}:LOW..HIGH with two numbers{least}, the lower one first, got "
        f"{kind}:{first}..{last}"
    )


def check_space(
    space: Mapping[str, BaseDistribution], fixed: Mapping[str, str], config: Any
) -> None:
    """Check the keys, each choice, and both ends and a point of each interval, before anything starts.

    Raises:
        ValueError: for an unknown key or a value that the config rejects.
    """
    for key, one in space.items():
        if isinstance(one, IntDistribution):
            values: Sequence[Any] = (one.low, one.high)
        elif isinstance(one, FloatDistribution):
            # The point is no whole number, even if both ends are.
            values = (one.low, one.high, one.low + 0.4142 * (one.high - one.low))
        else:
            assert isinstance(one, CategoricalDistribution)
            values = one.choices
        for value in values:
            run_settings(config, {key: text_of(value)}, fixed)


class Trials:
    """Source of the runs of a study.

    Args:
        folder: folder of the sweep.
        config: config with the values that no trial sets.
        space, fixed: from `parse_space`; `fixed` may have further values.
        n_trials: how many trials there are in all, over all starts of the sweep.
        key: column of the returns.
        sampler, pruner: names in SAMPLERS and PRUNERS.

    Attributes:
        runs: all runs so far.

    Raises:
        ValueError: if the study is damaged, is about another column, or has runs with another config, or for
            a pruner with a config that has no integer `n_steps`.
    """

    def __init__(
        self,
        folder: SweepFolder,
        config: Any,
        space: Mapping[str, BaseDistribution],
        fixed: Mapping[str, str],
        n_trials: int,
        key: str,
        sampler: str,
        pruner: str,
    ) -> None:
        self._folder, self._config, self._key = folder, config, key
        self._space, self._fixed = dict(space), dict(fixed)
        self._asked: dict[str, Trial] = {}
        self._reported: dict[str, float] = {}  # last step of each curve that the study knows
        self._next_number = 0
        self.runs: list[ScheduledRun] = []
        # Progress is shown by the sweep.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        n_steps = value_at(config_values(change_config(config, fixed)), _LENGTH)
        if type(n_steps) is not int and pruner != "none":
            raise ValueError(
                f"--pruner {pruner} needs the length of a run: a field {_LENGTH} in the config"
            )
        self._study = _study(folder.path / "optuna.log", key)
        # A restart with the same seed would draw the first parameters again.
        self._study.sampler = SAMPLERS[sampler](len(self._study.get_trials(deepcopy=False)))
        self._study.pruner = PRUNERS[pruner](n_steps or 0)
        self._left = n_trials - self._take_over()

    def _take_over(self) -> int:
        """List the runs of ended trials, and enqueue interrupted ones. Returns the number of ended trials."""
        ended: dict[str, FrozenTrial] = {}
        others: dict[str, FrozenTrial] = {}
        waiting: set[str] = set()
        for trial in self._study.get_trials(deepcopy=False):
            name = trial.user_attrs.get(RUN)
            if trial.state == TrialState.RUNNING:  # of a process that was stopped or killed
                self._study.tell(trial.number, state=TrialState.FAIL)
            if name is None:  # killed before the run had a name
                continue
            if trial.state == TrialState.WAITING:
                waiting.add(name)
            if not set(self._space) <= set(trial.params):
                continue  # it is waiting, or its process was killed before all were drawn
            over = trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
            # If the folder of a run was removed, the run starts from the beginning.
            over = over and (self._folder.run(name) / "run.json").is_file()
            (ended if over else others)[name] = trial
            self._next_number = max(self._next_number, _number_of(name) + 1)
        self._folder.check_runs(
            [self._run(name, trial.params).settings for name, trial in {**others, **ended}.items()]
        )
        for name, trial in ended.items():
            run = self._run(name, trial.params)
            run.state = trial.user_attrs.get(_STATE, "finished")
            run.progress.refresh()
            self.runs.append(run)
        for name, trial in others.items():
            if name not in ended and name not in waiting:
                # Again as a new trial, as only the process that asked for a trial can report to it.
                self._study.enqueue_trial(dict(trial.params), user_attrs={RUN: name})
        return len(ended)

    def _run(self, name: str, params: Mapping[str, Any]) -> ScheduledRun:
        changes = {key: text_of(value) for key, value in params.items()}
        try:
            settings = run_settings(self._config, changes, self._fixed, name)
        except ValueError:
            # The config rejects this combination. The run's process fails with the error, and others go on.
            settings = RunSettings(name, {**self._fixed, **changes}, dict(params), {})
        return ScheduledRun(settings, Progress(self._folder.run(name), self._key))

    # ------------------------------------------------------------------ source

    def next_run(self) -> ScheduledRun | None:
        """Return the run of an interrupted trial, or of a new one."""
        if self._left <= 0:
            return None
        self._left -= 1
        trial = self._study.ask(self._space)
        name = trial.user_attrs.get(RUN)
        if name is None:
            name, self._next_number = f"trial-{self._next_number:04d}", self._next_number + 1
            trial.set_user_attr(RUN, name)
        run = self._run(name, trial.params)
        run.progress.refresh()
        self._asked[name] = trial
        self.runs.append(run)
        return run

    def progressed(self, run: ScheduledRun) -> bool:
        """Report new returns. Returns whether the pruner ends the run."""
        trial = self._asked[run.name]
        # By step, as a resumed run drops rows after its checkpoint and writes them again.
        known = self._reported.get(run.name, -1.0)
        new = [point for point in run.progress.curve if point[0] > known]
        for point in new:
            trial.report(point[1], int(point[0]))
            self._reported[run.name] = point[0]
        goal = run.settings.config.get(_LENGTH)
        if not new or (isinstance(goal, int) and new[-1][0] >= goal):
            return False  # at its end, it has a result
        return trial.should_prune()

    def ended(self, run: ScheduledRun) -> None:
        """Tell the study the last return, or that the run failed. Nothing if the sweep is stopping."""
        trial, value = self._asked.pop(run.name), run.progress.value
        if run.state in ("stopped", "waiting"):
            return  # the trial remains unfinished, and is asked for again by the next start
        trial.set_user_attr(_STATE, run.state)
        if run.state == PRUNED:
            self._study.tell(trial, state=TrialState.PRUNED)
        elif run.state in ENDED and value is not None:
            self._study.tell(trial, value)
        else:
            if run.state in ENDED:
                run.state = "failed"
                run.error = f"logged no {self._key!r}; --key names another column of progress.csv"
            self._study.tell(trial, state=TrialState.FAIL)


def _study(file: Path, key: str) -> optuna.Study:
    _remove_partial_line(file)
    # The sweep holds a lock. Optuna's is a file, which would outlast a killed process and stop the next one.
    lock = JournalFileOpenLock(f"{file}.{os.getpid()}")
    try:
        storage = JournalStorage(JournalFileBackend(str(file), lock_obj=lock))
        study = optuna.create_study(
            storage=storage, study_name="sweep", direction="maximize", load_if_exists=True
        )
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{file}: damaged: {error}") from error
    held = study.user_attrs.get(_KEY)
    if held != key and study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]):
        raise ValueError(
            f"{file.parent}: the returns of this study are from {held!r}, not {key!r}; name another folder "
            "with --into"
        )
    study.set_user_attr(_KEY, key)
    return study


def _remove_partial_line(file: Path) -> None:
    """Cut off the end of a line that a killed process has not finished: Optuna would append to it."""
    if file.is_file():
        with file.open("r+b") as journal:
            journal.truncate(journal.read().rfind(b"\n") + 1)


def _number_of(name: str) -> int:
    return int(name.rpartition("-")[2])
