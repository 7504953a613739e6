"""Trials of Optuna in a sweep."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from small_build import Config

from parllel.cli.run_commands import add_commands
from parllel.cli.sweeps import scheduler
from parllel.cli.sweeps.folder import SweepFolder
from parllel.cli.sweeps.progress import Progress
from parllel.cli.sweeps.scheduler import ScheduledRun, Scheduler
from parllel.cli.sweeps.script import load_script
from parllel.cli.sweeps.settings import run_settings
from parllel.cli.sweeps.trials import PRUNERS, SAMPLERS, Trials, check_space, parse_space

SCRIPT = Path(__file__).parent / "small_build.py"
SPACE = {"learning.rate": "log:1e-5..1e-3", "n_steps": "int:20..60", "seed": "3"}


@dataclass(frozen=True)
class Pair:
    """A config that rejects a combination."""

    low: int = 0
    high: int = 9

    def __post_init__(self):
        if (self.low, self.high) == (5, 9):
            raise ValueError("low: 5 does not go with 9")


@pytest.fixture
def trials(tmp_path):
    """Open the study of a folder, as each start of the sweep does."""

    def trials(n, sampler="random", pruner="none", key="return", **values):
        config = Config(**values)
        space, fixed = parse_space(SPACE, config)
        return Trials(SweepFolder(tmp_path), config, space, fixed, n, key, sampler, pruner)

    return trials


def end(trials, run, *returns, state="finished"):
    """Let a run log returns and end. Returns whether the pruner would have ended it."""
    pruned = False
    for i, value in enumerate(returns):
        run.progress.curve = [*run.progress.curve, (20 * i, value)]
        pruned = trials.progressed(run) or pruned
    run.state = state
    run.progress.path.mkdir(exist_ok=True)
    for name, values in (("config", run.settings.config), ("run", {})):
        (run.progress.path / f"{name}.json").write_text(json.dumps(values))
    trials.ended(run)
    return pruned


def test_a_space():
    space, fixed = parse_space(
        {**SPACE, "pause_s": "float:0..0.5", "failing_at": "-1,10", "evaluate": "true"}, Config()
    )
    assert space == {
        "learning.rate": FloatDistribution(1e-5, 1e-3, log=True),
        "n_steps": IntDistribution(20, 60),
        "pause_s": FloatDistribution(0, 0.5),
        "failing_at": CategoricalDistribution(("-1", "10")),
    }
    assert fixed == {"seed": "3", "evaluate": "true"}
    check_space(space, fixed, Config())
    assert parse_space({"n_steps": "logint:16..512"}, Config())[0] == {
        "n_steps": IntDistribution(16, 512, log=True)
    }


@given(low=st.floats(1e-6, 1), high=st.floats(1e-6, 1))
def test_an_interval_has_its_lower_end_first(low, high):
    pairs = {"learning.rate": f"log:{low}..{high}"}
    if low < high:
        assert parse_space(pairs, Config())[0] == {
            "learning.rate": FloatDistribution(low, high, log=True)
        }
    else:
        with pytest.raises(ValueError, match=r"learning.rate: expected log:LOW..HIGH"):
            parse_space(pairs, Config())


@pytest.mark.parametrize(
    ("pairs", "error"),
    [
        ({"learning.rate": "log:0..1"}, "two numbers above 0"),
        ({"n_steps": "int:1.5..3"}, "expected int:LOW..HIGH with two numbers, the lower one first"),
        ({"n_steps": "int:3"}, "expected an interval such as log:1e-5..1e-3, got 'int:3'"),
        ({"n_steps": "20"}, "expected at least one key with several values"),
        ({"n_steps": "2..10"}, "n_steps: expected an interval such as log:1e-5..1e-3, got '2..10'"),
        ({"n_steps": "int:1..3", "seed": "0-4"}, "seed: expected one value with --optuna"),
    ],
)
def test_mistakes_in_a_space(pairs, error):
    with pytest.raises(ValueError, match=re.escape(error)):
        parse_space(pairs, Config())


@pytest.mark.parametrize(
    ("pairs", "error"),
    [
        ({"learning.rat": "log:1e-5..1e-3"}, "did you mean 'learning.rate'"),
        ({"seed": "float:0.5..1.5"}, "seed: expected a whole number"),
        ({"seed": "float:0..2"}, "seed: expected a whole number, got '0.8284'"),
        ({"n_steps": "20,many"}, "n_steps: expected a whole number, got 'many'"),
    ],
)
def test_values_are_checked_before_the_start(pairs, error):
    space, fixed = parse_space(pairs, Config())
    with pytest.raises(ValueError, match=re.escape(error)):
        check_space(space, fixed, Config())


def test_trials_are_numbered_and_counted(trials):
    study = trials(3)
    for i in range(3):
        run = study.next_run()
        assert run.name == f"trial-{i:04d}"
        assert set(run.settings.values) == {"learning.rate", "n_steps"}
        assert 1e-5 <= run.settings.config["learning"]["rate"] <= 1e-3
        assert 20 <= run.settings.config["n_steps"] <= 60
        assert run.settings.config["seed"] == 3
        end(study, run, 1.0)
    assert study.next_run() is None
    again = trials(3)
    assert again.next_run() is None
    assert [run.state for run in again.runs] == ["finished"] * 3
    assert trials(4).next_run().name == "trial-0003"


def test_interrupted_trials_are_continued_with_their_parameters(trials):
    study = trials(4)
    killed, done, failed = (study.next_run() for _ in range(3))
    end(study, done, 1.0)
    end(study, failed, 1.0, state="failed")
    for _ in range(2):  # the second start is killed too: one trial runs, one has no parameters yet
        study = trials(4)
        assert [run.name for run in study.runs] == [done.name]
        study.next_run()
        study._study.ask()
    study = trials(4)
    asked = [study.next_run() for _ in range(3)]
    assert study.next_run() is None
    settings = {run.name: run.settings for run in asked}
    assert settings[killed.name] == killed.settings
    assert settings[failed.name] == failed.settings
    assert set(settings) == {killed.name, failed.name, "trial-0003"}
    for run in asked:
        end(study, run, 2.0)
    assert sorted(run.name for run in trials(4).runs) == [f"trial-{i:04d}" for i in range(4)]


def test_stopped_trials_are_continued(trials):
    study = trials(1)
    run = study.next_run()
    end(study, run, 1.0, state="stopped")
    assert trials(1).next_run().settings == run.settings


def test_the_pruner_ends_what_is_worse_than_the_median(trials):
    study = trials(12, pruner="median")
    for i in range(10):
        assert not end(study, study.next_run(), 1.0 + i, 2.0 + i)
    bad = study.next_run()
    bad.progress.curve = [(0, 0.5)]
    assert not study.progressed(bad)  # in the first quarter of the 60 steps
    assert end(study, bad, 0.5, 0.5, state="pruned")
    assert not end(study, study.next_run(), 20.0, 30.0)
    again = trials(12, pruner="median")
    assert again.next_run() is None
    assert sorted(run.state for run in again.runs) == ["finished"] * 11 + ["pruned"]


@pytest.mark.parametrize("pruner", PRUNERS)
def test_a_trial_at_its_end_is_not_pruned(trials, pruner):
    study = trials(21, pruner=pruner)
    for i in range(20):
        end(study, study.next_run(), *(100.0 - i for _ in range(5)))
    run = study.next_run()
    run.progress.curve = [(0, 0.0), (run.settings.config["n_steps"], 0.0)]
    assert not study.progressed(run)


@dataclass(frozen=True)
class Endless:
    """A config without the length of a run."""

    rate: float = 1.0


def test_a_pruner_needs_the_length_of_a_run(tmp_path):
    space, fixed = parse_space({"rate": "float:0..1"}, Endless())
    for pruner in PRUNERS:
        words = (SweepFolder(tmp_path), Endless(), space, fixed, 1, "return", "random", pruner)
        if pruner == "none":
            assert Trials(*words).next_run().name == "trial-0000"
        else:
            with pytest.raises(ValueError, match=f"--pruner {pruner} needs .* a field n_steps"):
                Trials(*words)


def test_rows_that_a_resumed_run_writes_again_are_reported_once(trials):
    study = trials(1, pruner="median")
    run = study.next_run()
    for steps in ((0, 20, 40), (0, 20), (0, 20, 40), (0, 20, 40, 60)):
        run.progress.curve = [(step, 1.0) for step in steps]
        study.progressed(run)  # Optuna warns of a step that is reported twice


@pytest.mark.parametrize("pruner", PRUNERS)
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.few(4)
def test_samplers_and_pruners(trials, sampler, pruner):
    runs = []
    for _ in range(2):  # the second half is a continued study
        study = trials(len(runs) + 7, sampler, pruner)
        while (run := study.next_run()) is not None:
            runs.append(run)
            end(study, run, 1.0, run.settings.values["learning.rate"])
    rates = [run.settings.values["learning.rate"] for run in runs]
    assert len(rates) == 14
    assert (
        not set(rates[:7]) & set(rates[7:]) or sampler == "gp"
    )  # it may know that a bound is best
    assert all(1e-5 <= rate <= 1e-3 for rate in rates)


def test_the_command_line_names_the_samplers_and_pruners():
    commands = argparse.ArgumentParser().add_subparsers()
    add_commands(commands)
    flags = {action.dest: action.choices for action in commands.choices["sweep"]._actions}
    assert set(flags["sampler"]) == set(SAMPLERS)
    assert set(flags["pruner"]) == set(PRUNERS)


def test_a_trial_without_its_folder_starts_from_the_beginning(trials):
    study = trials(2)
    runs = [study.next_run() for _ in range(2)]
    for run in runs:
        end(study, run, 1.0)
    shutil.rmtree(runs[0].progress.path)
    for _ in range(2):
        study = trials(2)
        assert [run.name for run in study.runs] == ["trial-0001"]
        run = study.next_run()
        assert run.settings == runs[0].settings
        assert study.next_run() is None
    end(study, run, 2.0)
    assert trials(2).next_run() is None


def test_runs_with_another_config_are_refused(trials):
    study = trials(3)
    interrupted, ended = study.next_run(), study.next_run()
    end(study, interrupted, 1.0, state="stopped")
    end(study, ended, 1.0)
    with pytest.raises(ValueError, match=r"trial-0000: was trained with pause_s=0.0 instead of"):
        trials(3, pause_s=0.5)
    shutil.rmtree(interrupted.progress.path)
    with pytest.raises(ValueError, match=r"trial-0001: was trained with pause_s=0.0 instead of"):
        trials(3, pause_s=0.5)


def test_returns_of_another_column_are_refused(trials):
    study = trials(2, key="retrun")
    run = study.next_run()
    end(study, run)
    assert (run.state, run.error) == (
        "failed",
        "logged no 'retrun'; --key names another column of progress.csv",
    )
    study = trials(2)
    end(study, study.next_run(), 1.0)
    with pytest.raises(ValueError, match="returns of this study are from 'return', not 'loss'"):
        trials(2, key="loss")


def test_a_combination_that_the_config_rejects_fails_in_its_run(tmp_path):
    space, fixed = parse_space({"low": "int:0..9"}, Pair())
    check_space(space, fixed, Pair())
    trials = Trials(SweepFolder(tmp_path), Pair(), space, fixed, 30, "return", "random", "none")
    runs = [trials.next_run() for _ in range(30)]
    for run in runs:
        low = run.settings.values["low"]
        assert run.settings.changes == {"low": str(low)}
        assert run.settings.config == ({} if low == 5 else {"low": low, "high": 9})
    assert 5 in [run.settings.values["low"] for run in runs]


def test_a_line_that_was_cut_off_is_not_continued(trials, tmp_path):
    study = trials(2)
    run = study.next_run()
    end(study, run, 1.0)
    journal = tmp_path / "optuna.log"
    with journal.open("ab") as file:
        file.write(b'{"op_code":4,"study')
    study = trials(2)
    end(study, study.next_run(), 1.0)
    assert [run.state for run in trials(2).runs] == ["finished"] * 2
    journal.write_bytes(b"{}\n" + journal.read_bytes())
    with pytest.raises(ValueError, match=r"optuna.log: damaged: "):
        trials(2)


class Once:
    """One run, which a pruner ends at its first rows."""

    def __init__(self, run):
        self.left = [run]

    def next_run(self):
        return self.left.pop() if self.left else None

    def progressed(self, run):
        return True

    def ended(self, run):
        pass


def test_a_run_that_ended_before_it_was_pruned_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "_POLL_S", 200.0)  # its rows are read when it has ended
    script, folder = load_script(str(SCRIPT)), SweepFolder(tmp_path / "s")
    run = ScheduledRun(
        run_settings(script.config, {"seed": "1"}), Progress(folder.run("seed=1"), "x")
    )
    with folder.held({}):
        Scheduler(script, folder, 1, 1, lambda run: None).run(Once(run), print)
    assert (run.state, run.error, run.progress.steps) == ("finished", "", 60)


def test_the_command(call, mistake, tmp_path):
    words = ("sweep", SCRIPT, "learning.rate=log:1e-5..1e-3", "--optuna", "--into", tmp_path / "s")
    assert call(*words, "--trials", "2")[0] == 0
    status, output, errors = call(*words, "--trials", "3", "--sampler", "random")
    assert (status, errors) == (0, "")
    assert "2 of 3 runs have ended before" in output
    assert "[3/3] trial-0002: finished" in output
    results = json.loads((tmp_path / "s" / "results.json").read_text())
    runs = results["runs"]
    assert sorted(one["settings"]["run"] for one in results["settings"]) == sorted(
        run["name"] for run in runs
    )
    assert {run["name"]: run["state"] for run in runs} == {
        f"trial-{i:04d}": "finished" for i in range(3)
    }
    rates = [
        json.loads((tmp_path / "s" / run["name"] / "config.json").read_text())["learning"]["rate"]
        for run in runs
    ]
    assert rates == [run["settings"]["learning.rate"] for run in runs]
    other = [text.replace("1e-5", "1e-4") if isinstance(text, str) else text for text in words]
    assert (
        "is the folder of another sweep, with the values learning.rate=log:1e-5..1e-3 instead of "
        "learning.rate=log:1e-4..1e-3; name another one with --into"
    ) in mistake(*other)


def test_mistakes(mistake, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "--trials is for --optuna only" in mistake("sweep", SCRIPT, "seed=0", "--trials", "3")
    words = ("sweep", SCRIPT, "learning.rate=log:1e-5..1e-3", "--optuna")
    assert "learning.rate: the interval log:1e-5..1e-3 is for --optuna only" in mistake(*words[:-1])
    assert "--trials: expected 1 or more" in mistake(*words, "--trials", "0")
    monkeypatch.delitem(sys.modules, "parllel.cli.sweeps.trials", raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "--optuna needs optuna: pip install '.[sweeps]'" in mistake(*words)
    assert list(tmp_path.iterdir()) == []
