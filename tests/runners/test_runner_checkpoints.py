from __future__ import annotations

import io
import json
import math
import os

import gymnasium as gym
import pytest
from listed_runs import CountingAlgorithm, ListSampler, traj
from rich.console import Console

from parllel import Seeds
from parllel.agents import RandomAgent
from parllel.logging import (
    CsvWriter,
    JsonlWriter,
    Logger,
    TensorBoardWriter,
    TextWriter,
)
from parllel.runners import Callback, checkpointing
from parllel.runs import RunFolder, load_state

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_folder_gets_checkpoint_and_picture(make_runner, tmp_path):
    folder, seeds = RunFolder(tmp_path, "run"), Seeds(5)
    seeds.integer("sampler")
    runner = make_runner(
        ListSampler([traj(1)]),
        folder=folder,
        state_parts={"more": CountingAlgorithm()},
        seeds=seeds,
    )
    runner.run()
    path, state = folder.checkpoints.load_newest()
    assert path == folder.checkpoints.paths()[-1]
    assert state["elapsed_steps"] == 60
    assert state["parts"] == {
        "sampler": {"collected": 6},
        "algorithm": {"calls": 6},
        "more": {"calls": 0},
    }
    assert folder.learning_curve.read_bytes().startswith(PNG)
    assert json.loads((folder.path / "seeds.json").read_text())["entropy"] == 5


class Owner(CountingAlgorithm):
    """Have an agent, as algorithms of torch do."""

    def __init__(self, agent):
        super().__init__()
        self.agent = agent


@pytest.mark.parametrize("names", [(), ("agent",), ("policy",)])
def test_the_agent_of_the_algorithm_is_saved_once_whoever_names_it(make_runner, names):
    agent = RandomAgent(gym.spaces.Discrete(2), seed=0)
    parts = dict.fromkeys(names, agent)
    runner = make_runner(ListSampler([]), Owner(agent), state_parts=parts)
    saved = runner.state()
    name = next(iter(names), "agent")
    assert set(saved["parts"]) == {name, "sampler", "algorithm"}
    other = RandomAgent(gym.spaces.Discrete(2), seed=1)
    options = {"state_parts": dict.fromkeys(names, other)}
    make_runner(ListSampler([]), Owner(other), **options).load_state(saved)
    assert other.state() == agent.state()


def test_a_part_of_a_name_that_is_taken_is_refused(make_runner):
    for name in ("sampler", "algorithm", "eval_sampler"):
        with pytest.raises(
            ValueError, match=f"state_parts: '{name}' is a name that the runner uses"
        ):
            make_runner(ListSampler([]), state_parts={name: CountingAlgorithm()})


class LateState(CountingAlgorithm):
    """Have a state that is there after the first batch only, as that of an optimiser is."""

    def __init__(self, late):
        super().__init__()
        self.late = late

    def state(self):
        return {**super().state(), "opt": {0: self.late} if self.calls else {}}


def test_a_state_that_cannot_be_saved_ends_the_run_at_its_beginning(make_runner, tmp_path):
    for late, calls in (({1, 2}, 1), ((1, None), 6)):
        algorithm = LateState(late)
        folder = RunFolder(tmp_path, "run")
        runner = make_runner(ListSampler([traj(1)]), algorithm, folder=folder)
        if calls == 1:
            said = r"could not be resumed: state\.parts\.algorithm\.opt\[0\]: expected .*, got set; return"
            with pytest.raises(TypeError, match=said):
                runner.run()
        else:
            runner.run()
            state = folder.checkpoints.load_newest()[1]
            assert state["parts"]["algorithm"] == {"calls": 6, "opt": {0: late}}
        assert len(algorithm.calls) == calls


def test_a_picture_that_cannot_be_drawn_is_a_warning(make_runner, tmp_path, writer, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("no font")

    monkeypatch.setattr(checkpointing, "plot_learning_curve", fail)
    folder = RunFolder(tmp_path, "run")
    assert make_runner(ListSampler([traj(1)]), folder=folder).run().elapsed_steps == 60
    assert folder.checkpoints.load_newest()[1]["elapsed_steps"] == 60
    (text,) = [text for level, text in writer.messages if level == "warning"]
    assert text == "no learning curve was drawn: RuntimeError: no font"


class Unwritable(io.StringIO):
    """A console's file on a disk that is full, or a pipe that nobody reads."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), SystemExit(1)], ids=["disk", "pipe"]
)
def test_a_bar_that_cannot_be_drawn_does_not_end_the_run(make_runner, tmp_path, error):
    folder, console = RunFolder(tmp_path, "run"), Console(file=Unwritable(error))
    result = make_runner(ListSampler([]), folder=folder, console=console).run()
    assert (result.elapsed_steps, result.stopped_by) == (60, None)


class Unsaved(ListSampler):
    """Have environments that say no states."""

    unsaved_environments = {"SomeEnv": 2}


def test_environments_that_begin_anew_are_counted_and_named(make_runner, writer, tmp_path):
    options = {"eval_sampler": Unsaved([traj(1)]), "folder": RunFolder(tmp_path, "run")}
    runner = make_runner(Unsaved([]), n_steps=10, **options)
    runner.run()
    text = "4 environments do not offer their state (SomeEnv): their episodes begin anew"
    (said,) = [said for level, said in writer.messages if level == "warning"]
    assert said.startswith(f"{text} when this run is resumed; see")
    writer.messages.clear()
    resumed = make_runner(Unsaved([]), n_steps=30, **options)
    resumed.load_state(runner.state())
    assert writer.messages == []  # what is said before the log is taken back would go with it
    resumed.run()
    (said,) = [said for level, said in writer.messages if level == "warning"]
    assert said.startswith(f"{text}; see")


def test_what_raises_leaves_the_checkpoint_of_before(make_runner, tmp_path, writer):
    folder = RunFolder(tmp_path, "run")
    runner = make_runner(
        ListSampler([traj(1)]),
        CountingAlgorithm(failing=4),
        folder=folder,
        checkpoint_interval_s=0.0,
    )
    with pytest.raises(FloatingPointError, match="not finite"):
        runner.run()
    assert list(writer.rows) == [20]
    _, state = folder.checkpoints.load_newest()
    assert (state["elapsed_steps"], state["parts"]["algorithm"]) == (20, {"calls": 2})
    assert folder.learning_curve.read_bytes().startswith(PNG)


def test_rows_reach_the_disk_before_the_checkpoint_after_them(make_runner, tmp_path, monkeypatch):
    folder = RunFolder(tmp_path, "run")
    kinds = (CsvWriter, JsonlWriter, TextWriter, TensorBoardWriter)
    writers = [kind(folder.path) for kind in kinds]
    synced, whole = {}, []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle):
        fsync(handle)
        found = os.fstat(handle)
        synced[found.st_ino] = found.st_size

    def noted_replace(source, target):
        if "step-" in str(target):
            found = [writer.path.stat() for writer in writers if writer.path.exists()]
            whole.append([synced.get(file.st_ino) == file.st_size for file in found])
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    options = {"logger": Logger(writers), "folder": folder, "checkpoint_interval_s": 0.0}
    make_runner(ListSampler([traj(1)]), **options).run()
    assert whole == [[True] * 3, *[[True] * 4] * 3]  # TensorBoard's is there from the first row on


def test_checkpoints_are_as_far_apart_as_asked(make_runner, tmp_path):
    folder = RunFolder(tmp_path, "run")
    make_runner(ListSampler([]), folder=folder, checkpoint_interval_s=3600.0).run()
    steps = [load_state(path)["elapsed_steps"] for path in folder.checkpoints.paths()]
    assert steps == [0, 60]


@pytest.mark.parametrize("keep", [1, 4])
def test_as_many_checkpoints_stay_as_asked(make_runner, tmp_path, keep):
    folder = RunFolder(tmp_path, "run")
    options = {"log_interval_steps": 10, "checkpoint_interval_s": 0.0, "keep_checkpoints": keep}
    make_runner(ListSampler([]), folder=folder, **options).run()
    steps = [load_state(path)["elapsed_steps"] for path in folder.checkpoints.paths()]
    assert steps == [10, 20, 30, 40, 50, 60][-keep:]


@pytest.mark.parametrize("method", ["after_sampling", "after_optimization", "after_evaluation"])
def test_a_checkpoint_asked_for_in_a_batch_is_that_of_its_end(make_runner, tmp_path, method):
    folder = RunFolder(tmp_path, "run")
    saved = []

    class Saving(Callback):
        def start(self, runner):
            self.runner = runner

    def save(self, elapsed_steps, *details):
        if elapsed_steps == 20:
            self.runner.save()
            saved.append(len(folder.checkpoints.paths()))

    setattr(Saving, method, save)
    options = {"folder": folder, "checkpoint_interval_s": 3600.0}
    options["eval_sampler"] = ListSampler([traj(1)])
    make_runner(ListSampler([traj(2)]), callbacks=[Saving()], **options).run()
    assert saved == [1]  # that of the beginning
    states = [load_state(path) for path in folder.checkpoints.paths()]
    assert [state["elapsed_steps"] for state in states] == [0, 20, 60]
    assert states[1]["parts"]["algorithm"] == {"calls": 2}
    # The evaluation and the row of step 20 are done, and not to be done again.
    assert states[1]["next_row"] == 40
    assert [step for step, _ in states[1]["curves"]["evaluation"]] == [0, 20]


def test_a_state_that_cannot_be_saved_shows_before_training(make_runner, tmp_path):
    class Unsaveable(CountingAlgorithm):
        def state(self):
            return {"thing": object()}

    algorithm = Unsaveable()
    runner = make_runner(ListSampler([]), algorithm, folder=RunFolder(tmp_path, "run"))
    with pytest.raises(TypeError, match=r"algorithm\.thing: expected numbers.*, got object"):
        runner.run()
    assert not algorithm.calls


def test_a_checkpoint_that_fails_later_is_a_warning(make_runner, tmp_path, writer):
    class Forgetful(CountingAlgorithm):
        def state(self):
            if len(self.calls) == 4:
                raise OSError(28, "No space left on device")
            return super().state()

    folder = RunFolder(tmp_path, "run")
    runner = make_runner(ListSampler([]), Forgetful(), folder=folder, checkpoint_interval_s=0.0)
    assert runner.run().elapsed_steps == 60
    steps = [load_state(path)["elapsed_steps"] for path in folder.checkpoints.paths()]
    assert steps == [0, 20, 60]
    warnings = [text for level, text in writer.messages if level == "warning"]
    assert len(warnings) == 1
    assert "No space left on device" in warnings[0]


def test_the_checkpoint_of_the_best_evaluation_is_kept(make_runner, tmp_path):
    def run(returns, **options):
        folder = RunFolder(tmp_path, "run")
        batches = [[traj(value)] for value in returns]
        evaluated = ListSampler(*batches)
        runner = make_runner(
            ListSampler([traj(1)]), folder=folder, eval_sampler=evaluated, **options
        )
        return folder, runner.run()

    # At steps 0, 20, 40, 60, 80 and 100; the first is of an untrained policy.
    folder, result = run([9, 1, 5, 3, 5, math.nan], n_steps=100, keep_checkpoints=1)
    assert result.best == (40, 5.0)
    (path,) = folder.best.paths()
    assert path == folder.path / "best" / "step-000000000040.zip"
    state = load_state(path)
    assert (state["elapsed_steps"], state["evaluation_return"]) == (40, 5.0)
    assert state["parts"]["algorithm"] == {"calls": 4}
    (last,) = folder.checkpoints.paths()
    assert last.name == "step-000000000100.zip"

    folder, result = run([9, math.nan, math.nan, math.nan])
    assert (result.best, folder.best.paths()) == (None, [])


def test_a_resumed_run_knows_which_evaluation_was_the_best(make_runner, tmp_path):
    def make(folder, *returns):
        evaluated = ListSampler(*([traj(value)] for value in returns))
        return make_runner(ListSampler([traj(1)]), folder=folder, eval_sampler=evaluated)

    folder = RunFolder(tmp_path, "run")
    first = make(folder, 0, 2, 7, 1)
    first.run()
    second = make(folder, 6, 8)
    second.load_state(first.state())
    second.n_steps = 100
    result = second.run()
    assert [value for _, value in result.curves["evaluation"]] == [0, 2, 7, 1, 6, 8]
    assert result.best == (100, 8.0)
    (path,) = folder.best.paths()
    assert path.name == "step-000000000100.zip"


def test_a_best_checkpoint_that_cannot_be_written_is_a_warning(make_runner, tmp_path, writer):
    folder = RunFolder(tmp_path, "run")
    (folder.path / "best").touch()
    options = {"folder": folder, "eval_sampler": ListSampler([traj(1)])}
    assert make_runner(ListSampler([traj(1)]), **options).run().elapsed_steps == 60
    (said,) = [text for level, text in writer.messages if level == "warning"]
    assert said.startswith("the checkpoint of the best evaluation was not written: FileExistsError")
