from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import small_run
from rich.console import Console
from small_run import Config, Rates, build

from parllel.errors import notes_of
from parllel.runners import repeat, resume, train
from parllel.runners.runs import rebuild
from parllel.runs import Checkpoints, RunFolder, config_values, load_state
from parllel.runs.reference import Reference

HERE = Path(__file__).parent


def rows_of(folder):
    """Return what was logged, but for times."""
    with (folder.path / "progress.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def files_of(folder):
    paths = [path for path in folder.path.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder.path)): path.read_bytes() for path in paths}


def assert_same_run(folder, expected):
    assert rows_of(folder) == rows_of(expected)
    (_, found), (_, wanted) = (f.checkpoints.load_newest() for f in (folder, expected))
    assert found["elapsed_steps"] == wanted["elapsed_steps"]
    assert found["curves"] == wanted["curves"]
    assert found["parts"]["sampler"] == wanted["parts"]["sampler"]
    assert found["parts"]["eval_sampler"] == wanted["parts"]["eval_sampler"]
    mean = wanted["parts"]["algorithm"]["mean"]
    np.testing.assert_array_equal(found["parts"]["algorithm"]["mean"], mean)


@pytest.fixture
def whole(tmp_path):
    """Return the folder of a run that nothing interrupted."""
    result, folder = train(build, Config(seed=4), base=tmp_path, name="whole")
    assert (result.elapsed_steps, result.stopped_by) == (60, None)
    return folder


@pytest.fixture
def stopped(tmp_path):
    """Return the folder of the same run, which was stopped after half of its steps."""
    result, folder = train(build, Config(seed=4, signal_at=30), base=tmp_path, name="stopped")
    assert (result.elapsed_steps, result.stopped_by) == (30, "SIGTERM")
    return folder


def test_a_run_leaves_what_it_was(whole):
    record = whole.read_record()
    assert record.build_function.name == "small_run:build"
    assert record.config == {**json.loads(json.dumps(record.config)), "seed": 4, "n_steps": 60}
    expected = {"elapsed_steps": 60, "solved": False, "stopped_by": None}
    assert expected.items() <= record.outcome.items()
    assert math.isfinite(record.outcome["evaluation_return"])
    assert (whole.path / "closed").read_text() == "yes"
    assert not whole.in_use
    assert [row["step"] for row in rows_of(whole)] == ["0", "20", "40", "60"]
    assert json.loads((whole.path / "seeds.json").read_text())["entropy"] == 4


@pytest.mark.parametrize("given", [{}, {"build": build, "config_class": Config}], ids=["", "given"])
@pytest.mark.parametrize("again", [resume, repeat, rebuild])
def test_a_run_of_another_kind_is_refused(tmp_path, again, given):
    folder = RunFolder(tmp_path, "played")
    folder.write_record(None, config_values(Config()), kind="experiment")
    folder.note_outcome({})
    before = files_of(folder)
    with ExitStack() as stack:
        rest = (stack,) if again is rebuild else ()
        with pytest.raises(
            ValueError, match=r"^\S+played: .* got one of kind 'experiment', which has no build"
        ):
            again(folder.path, *rest, **given)
    assert {name: held for name, held in files_of(folder).items() if name != "lock"} == before
    assert [path.name for path in tmp_path.iterdir()] == ["played"]


def test_a_resumed_run_is_the_uninterrupted_one(whole, stopped):
    assert stopped.read_record().outcome["stopped_by"] == "SIGTERM"
    result, folder = resume(stopped.path, changes={"signal_at": "none"})
    assert folder.path == stopped.path
    assert (result.elapsed_steps, result.stopped_by) == (60, None)
    assert_same_run(folder, whole)
    record = folder.read_record()
    (entry,) = record.history
    assert (entry["step"], entry["changes"]) == (30, {"signal_at": "none"})
    assert record.config == whole.read_record().config
    assert record.outcome["elapsed_steps"] == 60


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import small_run
from parllel.runners import train

class Killed(small_run.Averaging):
    def optimize_agent(self, elapsed_steps, samples):
        if elapsed_steps == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().optimize_agent(elapsed_steps, samples)

small_run.Averaging = Killed
train(small_run.build, small_run.Config(seed=4), base=sys.argv[2], name="killed")
"""


def test_a_killed_run_goes_on_by_its_folder_alone(whole, tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(HERE), str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    folder = RunFolder.open(tmp_path / "killed")
    record = folder.read_record()
    assert record.outcome is None
    assert not folder.in_use
    # Another process, which has never heard of the build function.
    program = "import sys; from parllel.runners import resume; resume(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, str(folder.path)], check=True, cwd=tmp_path)
    assert_same_run(folder, whole)
    assert [entry["step"] for entry in folder.read_record().history] == [40]


def test_a_resume_says_from_where(whole, stopped):
    resume(stopped.path, changes={"signal_at": None})
    said = (stopped.path / "log.txt").read_text()
    assert "notice: going on from step-000000000030.zip, at 30 environment steps\n" in said
    *others, last = whole.checkpoints.paths()
    last.unlink()
    resume(whole.path, changes={"n_steps": 80})
    said = (whole.path / "log.txt").read_text()
    again = "those after it, up to 60, are done again"
    assert f"{others[-1].name}, at 40 environment steps; {again}\n" in said


def test_a_resume_whose_only_checkpoint_is_the_first_warns(whole, stopped):
    first = stopped.checkpoints.paths()[0]
    state = load_state(first)
    for path in stopped.checkpoints.paths()[1:]:
        path.unlink()
    assert state["elapsed_steps"] == 0
    resume(stopped.path, changes={"signal_at": None})
    said = (stopped.path / "log.txt").read_text()
    assert (
        "warning: going on from step-000000000000.zip: the run starts from the beginning, and all 30 "
        "environment steps are done again"
    ) in said
    assert_same_run(stopped, whole)


def test_rows_after_the_checkpoint_are_dropped(whole, stopped):
    # As if the process had gone on to 60 and been killed without writing a checkpoint.
    other = (whole.path / "progress.csv").read_bytes()
    (stopped.path / "progress.csv").write_bytes(other)
    resume(stopped.path, changes={"signal_at": None})
    assert [row["step"] for row in rows_of(stopped)] == ["0", "20", "40", "60"]


def test_changes_take_effect(stopped):
    changes = {"signal_at": "none", "n_steps": "80", "rates.learning_rate": "1"}
    result, folder = resume(stopped.path, changes=changes)
    assert result.elapsed_steps == 80
    _, state = folder.checkpoints.load_newest()
    last = rows_of(folder)[-1]
    assert float(last["training/return/count"]) == 2
    # At a rate of 1 the mean is the last of eight batches.
    generator = np.random.default_rng(small_run.Seeds(4).integer("numbers"))
    for _ in range(8):
        batch = generator.normal(size=3)
    np.testing.assert_allclose(state["parts"]["algorithm"]["mean"], batch, rtol=1e-12)
    config = folder.read_record().read_config()
    assert config == Config(seed=4, n_steps=80, rates=Rates(1.0))


def test_an_ended_run_stays_as_it_is(whole):
    before = files_of(whole)
    text = io.StringIO()
    result, folder = resume(whole.path, console=Console(file=text, width=200))
    assert text.getvalue() == (
        f"{whole.path} had ended after 60 steps: nothing to do. More steps continue it, for instance: "
        f"parllel resume {whole.path} n_steps=120\n"
    )
    assert files_of(folder) == before
    outcome = whole.read_record().outcome
    assert result.evaluation_return == outcome["evaluation_return"]
    assert result.curves["evaluation"][-1] == (60, result.evaluation_return)
    assert (result.elapsed_steps, result.solved) == (60, False)


def test_a_solved_run_stays_solved(tmp_path):
    first, folder = train(build, Config(target_return=-100.0), base=tmp_path)
    assert (first.solved, first.elapsed_steps) == (True, 20)
    text = io.StringIO()
    again, _ = resume(folder.path, console=Console(file=text, width=200))
    assert again == first
    assert text.getvalue().endswith("It was solved; a higher target_return continues it.\n")
    longer, _ = resume(folder.path, changes={"target_return": 1000.0})
    assert (longer.solved, longer.elapsed_steps) == (False, 60)


def test_an_ended_run_can_be_made_longer(whole, tmp_path):
    result, folder = resume(whole.path, changes={"n_steps": 100})
    assert result.elapsed_steps == 100
    _, longer = train(build, Config(seed=4, n_steps=100), base=tmp_path, name="longer")
    assert_same_run(folder, longer)


def test_a_run_without_checkpoints_begins_again(whole, stopped):
    for path in stopped.checkpoints.paths():
        path.unlink()
    resume(stopped.path, changes={"signal_at": None})
    assert_same_run(stopped, whole)
    text = (stopped.path / "log.txt").read_text()
    again = "the run starts from the beginning, and all 30 environment steps are done again"
    assert f"warning: there is no checkpoint: {again}" in text


def test_a_damaged_checkpoint_is_passed_over(whole, stopped):
    *_, older, newest = stopped.checkpoints.paths()
    newest.write_bytes(newest.read_bytes()[:100])
    resume(stopped.path, changes={"signal_at": None})
    assert [entry["step"] for entry in stopped.read_record().history] == [20]
    assert older.name == "step-000000000020.zip"
    assert_same_run(stopped, whole)
    assert f"warning: skipped a checkpoint: {newest}" in (stopped.path / "log.txt").read_text()


def test_no_whole_checkpoint_is_an_error(stopped):
    for path in stopped.checkpoints.paths():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"checkpoints: none of \d checkpoints can be read"):
        resume(stopped.path)


def test_messages_of_a_resume_are_not_dropped_with_what_it_drops(whole, stopped):
    # As if the process had gone on, and been killed; so its last checkpoint is after its last row.
    log = stopped.path / "progress.jsonl"
    log.write_text(log.read_text() + '{"step": 40, "a": 1}\n{"notice": "after 40"}\n')
    newest = stopped.checkpoints.paths()[-1]
    newest.write_bytes(b"damaged")
    path = stopped.path / "versions.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "numpy": "0.9"}))
    resume(stopped.path, changes={"signal_at": None})
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    messages = [text for line in lines for level, text in line.items() if "step" not in line]
    assert f"since this run began: numpy 0.9 has become {np.__version__}" in messages
    assert any(text.startswith(f"skipped a checkpoint: {newest}") for text in messages)
    assert "after 40" not in messages
    assert_same_run(stopped, whole)


def test_a_checkpoint_of_another_shape_is_refused(stopped):
    path = stopped.path / "versions.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "numpy": "0.9"}))
    before = files_of(stopped)
    newest = re.escape(str(stopped.checkpoints.paths()[-1]))
    message = (
        rf"^{newest} does not fit this run: algorithm: .*mean: expected shape \(4,\), got \(3,\)"
    )
    with pytest.raises(ValueError, match=message):
        resume(stopped.path, changes={"size": "4"})
    # It can still go on as it was.
    assert files_of(stopped) == before
    assert not stopped.in_use


def test_wrong_changes_change_nothing(stopped):
    before = files_of(stopped)
    with pytest.raises(ValueError, match=r"unknown key 'n_step'; did you mean 'n_steps'\?"):
        resume(stopped.path, changes={"n_step": 3})
    with pytest.raises(ValueError, match="n_steps: expected a whole number, got 'many'"):
        resume(stopped.path, changes={"n_steps": "many"})
    assert files_of(stopped) == before


def test_a_run_that_failed_goes_on_from_its_checkpoint(whole, tmp_path):
    config = Config(seed=4, fail_at=50)
    with pytest.raises(FloatingPointError, match="the loss is not finite") as failed:
        train(build, config, base=tmp_path, name="failed")
    folder = RunFolder.open(tmp_path / "failed")
    assert notes_of(failed.value) == [
        f"continue from the checkpoint of step 40 with: parllel resume {folder.path}"
    ]
    assert folder.read_record().outcome is None
    assert (folder.path / "closed").read_text() == "yes"
    with pytest.raises(FloatingPointError, match="the loss is not finite"):
        resume(folder.path)
    resume(folder.path, changes={"fail_at": None})
    assert_same_run(folder, whole)
    steps = [(entry["step"], entry["changes"]) for entry in folder.read_record().history]
    assert steps == [(40, {}), (40, {"fail_at": None})]


def test_without_a_checkpoint_an_error_names_no_way_on(tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoints, "paths", lambda self: [])
    with pytest.raises(FloatingPointError, match="the loss is not finite") as failed:
        train(build, Config(fail_at=50), base=tmp_path)
    assert notes_of(failed.value) == []


def test_a_second_ctrl_c_is_recorded_as_a_stop(whole, tmp_path, monkeypatch):
    def interrupted(self, elapsed_steps, samples):
        if elapsed_steps == 30:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
        return optimize(self, elapsed_steps, samples)

    optimize = small_run.Averaging.optimize_agent
    with monkeypatch.context() as patch:
        patch.setattr(small_run.Averaging, "optimize_agent", interrupted)
        with pytest.raises(KeyboardInterrupt) as interrupt:
            train(build, Config(seed=4), base=tmp_path, name="interrupted")
    assert len(notes_of(interrupt.value)) == 1  # as any error has
    folder = RunFolder.open(tmp_path / "interrupted")
    record = folder.read_record()
    assert (record.outcome["stopped_by"], record.outcome["elapsed_steps"]) == ("SIGINT", 30)
    assert not folder.in_use
    resume(folder.path)
    assert_same_run(folder, whole)


def test_a_run_that_cannot_be_put_together_leaves_no_folder(whole, tmp_path):
    config = Config(seed=4, fail_at=-1)
    for base in (tmp_path, tmp_path / "new" / "runs"):
        with pytest.raises(OSError, match="there is no such environment"):
            train(build, config, base=base, name="failed")
    with pytest.raises(OSError, match="there is no such environment"):
        repeat(whole.path, changes={"fail_at": -1}, base=tmp_path / "new")
    assert list(tmp_path.iterdir()) == [whole.path]
    with pytest.raises(OSError, match="there is no such environment"):
        resume(whole.path, changes={"fail_at": -1})
    assert whole.read_record().config["fail_at"] is None


def test_sigterm_while_a_run_is_put_together_says_so_and_leaves_no_folder(tmp_path, capfd):
    def build_and_end(config, stack, folder, console):
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit, match="143"):
        train(build_and_end, Config(), base=tmp_path)
    said = capfd.readouterr().err
    assert said == "SIGTERM while the run was being put together: nothing was trained\n"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_a_run_is_put_together_says_so_and_leaves_no_folder(whole, tmp_path):
    def build_and_interrupt(config, stack, folder, console):
        stack.callback((tmp_path / "closed").touch)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as interrupt:
        train(build_and_interrupt, Config(), base=tmp_path / "runs")
    said = "SIGINT while the run was being put together: "
    assert notes_of(interrupt.value) == [said + "nothing was trained"]
    assert (tmp_path / "closed").exists()
    assert not (tmp_path / "runs").exists()
    with pytest.raises(KeyboardInterrupt) as interrupt:
        resume(
            whole.path,
            changes={"n_steps": 90},
            build=build_and_interrupt,
            config_class=Config,
        )
    assert notes_of(interrupt.value) == [said + "it stays as it was"]
    assert whole.read_record().config["n_steps"] == 60
    assert not whole.in_use


def test_a_config_that_could_not_be_read_back_is_refused_at_once(tmp_path):
    with pytest.raises(TypeError, match=r"^tags\.thing: expected numbers, .* got <object"):
        train(build, Config(tags={"thing": object()}), base=tmp_path / "runs")
    with pytest.raises(TypeError, match=r"^n_steps: expected a whole number, got 60.5"):
        train(build, Config(n_steps=60.5), base=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_dict_as_config(tmp_path):
    config = {"seed": 4, "n_steps": 60}
    _, folder = train(small_run.build_from_dict, config, base=tmp_path)
    result, _ = resume(folder.path, changes={"n_steps": "80"})
    assert result.elapsed_steps == 80
    assert folder.read_record().config == {"seed": 4, "n_steps": 80}


GIVEN = []


def build_and_tell(config, stack, folder, console):
    GIVEN.append(config)
    return build(Config(seed=4, n_steps=config["n_steps"]), stack, folder, console)


def test_what_is_built_from_does_not_change_with_a_resume(tmp_path):
    GIVEN.clear()
    config = {"n_steps": 20, "sizes": (64, 64), "where": Path("data"), "rate": np.float32(0.5)}
    _, folder = train(build_and_tell, config, base=tmp_path)
    resume(folder.path, changes={"n_steps": 40})
    first, second = GIVEN
    assert first == {"n_steps": 20, "sizes": [64, 64], "where": "data", "rate": 0.5}
    assert second == {**first, "n_steps": 40}
    assert [type(value) for value in first.values()] == [int, list, str, float]


def test_functions_without_a_name_can_be_given(whole, tmp_path):
    def nested(config, stack, folder, console):
        return build(config, stack, folder, console)

    _, folder = train(nested, Config(seed=4, signal_at=30), base=tmp_path, name="nested")
    with pytest.raises(
        ValueError, match="nested cannot be found again: it stands inside of a func"
    ):
        resume(folder.path, changes={"signal_at": None})
    with pytest.raises(ValueError, match="nested cannot be found again"):
        repeat(folder.path)
    resume(folder.path, changes={"signal_at": None}, build=nested)
    assert_same_run(folder, whole)


def test_a_class_without_a_name_can_be_given(whole, tmp_path):
    class Nested(Config):
        pass

    config = Nested(seed=4, signal_at=30)
    _, folder = train(build, config, base=tmp_path, name="nested")
    with pytest.raises(ValueError, match="Nested cannot be found again: it stands inside"):
        resume(folder.path, changes={"signal_at": None})
    resume(folder.path, changes={"signal_at": None}, config_class=Nested)
    assert_same_run(folder, whole)


def test_other_versions_are_noted(stopped):
    path = stopped.path / "versions.json"
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "numpy": "0.9", "oldlib": "1.0", "command": "other"}))
    resume(stopped.path, changes={"signal_at": None})
    lines = [
        line.split("since this run began: ")[1]
        for line in (stopped.path / "log.txt").read_text().splitlines()
        if "since this run began" in line
    ]
    assert lines == [f"numpy 0.9 has become {np.__version__}", "oldlib 1.0 has become missing"]


def test_two_processes_in_one_folder_are_refused(stopped):
    with (
        stopped.lock(),
        pytest.raises(RuntimeError, match=rf"another process \({os.getpid()}\) is using this run"),
    ):
        resume(stopped.path)
    assert stopped.read_record().history == []


def test_folders_that_are_no_runs(tmp_path):
    (tmp_path / "other").mkdir()
    for action in (resume, repeat, lambda path: rebuild(path, ExitStack())):
        with pytest.raises(FileNotFoundError, match="missing: there is no such folder"):
            action(tmp_path / "missing")
        with pytest.raises(ValueError, match="other: not the folder of a run"):
            action(tmp_path / "other")


TRAINS_ON_IMPORT = """
from dataclasses import dataclass
import small_run
from parllel.runners import train

@dataclass(frozen=True)
class Config(small_run.Config):
    pass

def build(config, stack, folder, console):
    return small_run.build(config, stack, folder, console)

train(build, Config(), base="runs", name="one")
"""


def test_a_script_that_trains_when_it_is_imported_is_not_trained_again(tmp_path):
    (tmp_path / "train.py").write_text(TRAINS_ON_IMPORT)
    environment = {**os.environ, "PYTHONPATH": str(HERE)}

    def python(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    assert python("train.py").returncode == 0
    for doing in ("resume('runs/one', changes={'n_steps': 80})", "repeat('runs/one')"):
        done = python("-c", f"from parllel.runners import repeat, resume; {doing}")
        assert "train: called while" in done.stderr
        assert 'the script runs below `if __name__ == "__main__":`' in done.stderr
        assert [path.name for path in (tmp_path / "runs").iterdir()] == ["one"]


@pytest.mark.parametrize("doing", ["resume", "repeat", "rebuild"])
@pytest.mark.few(1)
def test_a_run_whose_source_has_moved(tmp_path, doing, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    source = (HERE / "small_run.py").read_text()
    modules = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / f"moved_{name}_{doing}.py"
        path.write_text(source)
        modules.append(Reference(f"{path.stem}:build", str(path)).find().__globals__)
    here, there = modules
    monkeypatch.setattr(sys, "path", [path for path in sys.path if str(tmp_path) not in path])
    config = here["Config"](signal_at=30)
    _, folder = train(here["build"], config, base=tmp_path / "runs", name="run")
    Path(here["__file__"]).unlink()
    del sys.modules[here["__name__"]]
    options = {"build": there["build"], "config_class": there["Config"]}
    with pytest.raises(FileNotFoundError, match="built this run no longer exists"):
        resume(folder.path)
    if doing == "rebuild":
        with ExitStack() as stack:
            assert rebuild(folder.path, stack, **options).result.elapsed_steps == 30
        return
    action = resume if doing == "resume" else repeat
    _, after = action(folder.path, changes={"signal_at": None}, **options)
    found = after.read_record()
    assert found.build_function.file == found.config_class.file == there["__file__"]
    # By its folder alone from now on.
    assert resume(after.path, changes={"n_steps": 80})[0].elapsed_steps == 80


# ---------------------------------------------------------------------- repeat


def test_a_repeated_run_is_the_same(whole):
    before = files_of(whole)
    result, folder = repeat(whole.path)
    assert result.elapsed_steps == 60
    assert folder.path == whole.path.with_name("whole-2")
    assert_same_run(folder, whole)
    assert folder.read_record().repeats == str(whole.path)
    assert folder.read_record().config == whole.read_record().config
    assert files_of(whole) == before


def test_a_run_is_repeated_with_changes_elsewhere(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(whole.path)
    _, folder = repeat(".", changes={"seed": "5"}, base=tmp_path / "elsewhere")
    assert folder.path == tmp_path / "elsewhere" / "whole"
    _, fresh = train(build, Config(seed=5), base=tmp_path, name="fresh")
    assert_same_run(folder, fresh)
    assert rows_of(folder) != rows_of(whole)


def test_a_repeated_run_can_have_a_name_of_its_own(whole):
    _, folder = repeat(whole.path, changes={"seed": 5}, name="seed-5")
    assert folder.path == whole.path.with_name("seed-5")


def test_wrong_changes_make_no_folder(whole):
    with pytest.raises(ValueError, match="unknown key 'sede'"):
        repeat(whole.path, changes={"sede": 1})
    assert [path.name for path in whole.path.parent.iterdir()] == ["whole"]


# ---------------------------------------------------------------------- rebuild


def test_a_run_is_put_together_as_it_was(stopped):
    before = files_of(stopped)
    with ExitStack() as stack:
        runner = rebuild(stopped.path, stack)
        assert runner.result.elapsed_steps == 30
        _, state = stopped.checkpoints.load_newest()
        np.testing.assert_array_equal(runner.algorithm.mean, state["parts"]["algorithm"]["mean"])
        assert (runner.folder.trains, stopped.trains) == (False, True)
        scratch = runner.folder.path
        assert scratch.is_dir()
        runner.logger.notice("this goes nowhere")
        runner.save()
    assert not scratch.exists()
    assert files_of(stopped) == before


def test_a_run_can_be_looked_at_while_it_goes_on(stopped):
    with stopped.lock(), ExitStack() as stack:
        assert rebuild(stopped.path, stack).result.elapsed_steps == 30


def test_nothing_is_shown_of_a_run_without_checkpoints(stopped):
    for path in stopped.checkpoints.paths():
        path.unlink()
    with (
        ExitStack() as stack,
        pytest.raises(FileNotFoundError, match="checkpoints: there is no checkpoint"),
    ):
        rebuild(stopped.path, stack)


def test_a_checkpoint_that_does_not_fit_is_refused_to_lookers(stopped):
    with ExitStack() as stack, pytest.raises(ValueError, match="does not fit this run: algorithm"):
        rebuild(stopped.path, stack, changes={"size": 7})
