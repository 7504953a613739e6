from __future__ import annotations

import io
import json
import os
import signal
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from rich.console import Console

from parllel import Seeds
from parllel.agents import RandomAgent
from parllel.algos import Algorithm
from parllel.cages import TrajInfo
from parllel.logging import (
    CsvWriter,
    JsonlWriter,
    Logger,
    TensorBoardWriter,
    TextWriter,
    Writer,
)
from parllel.runners import Callback, OnPolicyRunner, RunFolder, checkpointing, load_state
from parllel.runners.time_account import STAGES
from parllel.samplers import BasicSampler, Sampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_contract import DOUBLED, SHIFTED
from parllel.testing.sampler_setup import SamplerSetup
from parllel.types import BatchSpec

PNG = b"\x89PNG\r\n\x1a\n"
BATCH = BatchSpec(5, 2)


class RowWriter(Writer):
    """Keep rows."""

    def __init__(self):
        self.rows = {}
        self.messages = []

    def write(self, step, values):
        assert step not in self.rows
        self.rows[step] = dict(values)

    def message(self, level, text):
        self.messages.append((level, text))

    def close(self):
        pass


def traj(return_, length=1, **more):
    info = TrajInfo()
    info.return_, info.length = float(return_), length
    vars(info).update(more)
    return info


class ListSampler(Sampler):
    """Return one list of episodes after another; the last one again and again."""

    def __init__(self, *batches):
        self.batches = list(batches)
        self.elapsed = []

    def collect_batch(self, elapsed_steps):
        self.elapsed.append(elapsed_steps)
        trajs = self.batches.pop(0) if len(self.batches) > 1 else self.batches[0]
        return f"batch {len(self.elapsed)}", trajs

    @property
    def stats(self):
        return {"scalar": 3.0, "array": np.array([1.0, 3.0])}

    def state(self):
        return {"collected": len(self.elapsed)}

    def load_state(self, state):
        self.elapsed = [None] * state["collected"]

    def close(self):
        pass


class CountingAlgorithm(Algorithm):
    """Count, and fail in one call."""

    def __init__(self, failing=None):
        self.calls = []
        self.failing = failing

    def optimize_agent(self, elapsed_steps, samples):
        self.calls.append((elapsed_steps, samples))
        if len(self.calls) == self.failing:
            raise FloatingPointError("the loss is not finite")
        return {"loss": len(self.calls) / 2, "ratio": np.array([1.0, 2.0])}

    def state(self):
        return {"calls": len(self.calls)}

    def load_state(self, state):
        self.calls = [None] * state["calls"]


@pytest.fixture
def writer():
    return RowWriter()


@pytest.fixture
def make_runner(writer):
    def make(sampler, algorithm=None, **options):
        algorithm = CountingAlgorithm() if algorithm is None else algorithm
        arguments = {"n_steps": 60, "log_interval_steps": 20, "logger": Logger([writer]), **options}
        return OnPolicyRunner(BATCH, sampler, algorithm, **arguments)

    return make


def test_each_batch_is_learned_from_once(make_runner):
    sampler, algorithm = ListSampler([]), CountingAlgorithm()
    result = make_runner(sampler, algorithm, n_steps=30).run()
    assert sampler.elapsed == [0, 10, 20]
    assert algorithm.calls == [(10, "batch 1"), (20, "batch 2"), (30, "batch 3")]
    assert (result.elapsed_steps, result.solved) == (30, False)
    assert np.isnan(result.evaluation_return)


@pytest.mark.parametrize(
    ("n_steps", "interval", "steps"),
    [
        (60, 20, [20, 40, 60]),
        (60, 25, [30, 50, 60]),  # at the first batch that reaches 25, 50, and at the end
        (55, 100, [60]),  # the last batch may exceed the budget
        (30, 1, [10, 20, 30]),
        (1, 1, [10]),
    ],
)
def test_rows_come_at_their_steps(make_runner, writer, n_steps, interval, steps):
    make_runner(ListSampler([]), n_steps=n_steps, log_interval_steps=interval).run()
    assert list(writer.rows) == steps


def test_a_run_that_is_made_longer_has_its_rows_where_it_would_have_had_them(make_runner, writer):
    runner = make_runner(ListSampler([]), n_steps=50)
    runner.run()
    assert list(writer.rows) == [20, 40, 50]
    longer = make_runner(ListSampler([]), n_steps=100)
    longer.load_state(runner.state())
    longer.run()
    assert list(writer.rows) == [20, 40, 50, 60, 80, 100]


def test_rows_hold_what_happened_since_the_last(make_runner, writer):
    batches = [traj(1)], [traj(3, 5)], [], [], [traj(-1)], [traj(8)]
    result = make_runner(ListSampler(*batches)).run()
    first, second, third = (writer.rows[step] for step in (20, 40, 60))
    assert first["training/return/mean"] == 2
    assert (first["training/return/count"], first["training/length/max"]) == (2, 5)
    assert not any(name.startswith("training") for name in second)
    assert (third["training/return/min"], third["training/return/max"]) == (-1, 8)
    assert [row["algorithm/loss"] for row in (first, second, third)] == [1, 2, 3]
    assert (first["algorithm/ratio/mean"], first["sampler/array/std"]) == (1.5, 1)
    assert first["sampler/scalar"] == 3
    assert first["time/steps_per_second"] > 0
    assert first["time/sampling_s"] >= 0 <= first["time/optimising_s"]
    assert result.curves == {"training": [(20, 2.0), (60, 3.5)], "evaluation": []}


def test_only_numbers_of_episodes_are_logged(make_runner, writer):
    trajs = [
        traj(1, goal="north", won=True, path=[1, 2]),
        traj(2, goal="south", won=False, path=[]),
    ]
    make_runner(ListSampler(trajs), n_steps=20).run()
    names = {name.split("/")[1] for name in writer.rows[20] if name.startswith("training")}
    assert names == {"return", "length", "discounted_return", "won"}
    assert writer.rows[20]["training/won/mean"] == 0.5


def test_evaluations_come_before_training_and_with_rows(make_runner, writer):
    evaluations = ListSampler([traj(1)], [traj(2), traj(4)], [traj(5)])
    result = make_runner(ListSampler([]), eval_sampler=evaluations, n_steps=40).run()
    assert evaluations.elapsed == [0, 20, 40]
    assert list(writer.rows) == [0, 20, 40]
    assert set(writer.rows[0]) == {
        f"evaluation/{name}/{statistic}"
        for name in ("return", "length", "discounted_return")
        for statistic in ("count", "mean", "min", "max", "std", "median")
    }
    assert result.curves["evaluation"] == [(0, 1.0), (20, 3.0), (40, 5.0)]
    assert result.evaluation_return == 5


def test_it_stops_when_the_target_is_reached(make_runner, writer):
    evaluations = ListSampler([traj(0)], [traj(9)], [traj(10), traj(10)], [traj(0)])
    runner = make_runner(ListSampler([]), eval_sampler=evaluations, target_return=10.0)
    result = runner.run()
    assert (result.solved, result.elapsed_steps, result.evaluation_return) == (True, 40, 10)
    assert list(writer.rows) == [0, 20, 40]


def test_an_untrained_policy_solves_nothing(make_runner):
    evaluations = ListSampler([traj(100)], [traj(0)])
    result = make_runner(ListSampler([]), eval_sampler=evaluations, target_return=10.0).run()
    assert (result.solved, result.elapsed_steps) == (False, 60)


def test_the_folder_gets_checkpoint_and_picture(make_runner, tmp_path):
    folder = RunFolder(tmp_path, "run")
    runner = make_runner(
        ListSampler([traj(1)]),
        folder=folder,
        state_parts={"more": CountingAlgorithm()},
        seeds=Seeds(5),
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
        with pytest.raises(ValueError, match=f"state_parts: '{name}' is what the runner calls"):
            make_runner(ListSampler([]), state_parts={name: CountingAlgorithm()})


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


def test_rows_reach_the_disk_before_the_checkpoint_behind_them(make_runner, tmp_path, monkeypatch):
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
    with pytest.raises(TypeError, match=r"algorithm\.thing: expected arrays and JSON values"):
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


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_run_behind_the_batch(make_runner, tmp_path, name):
    class Signalling(Callback):
        def after_sampling(self, elapsed_steps, samples, trajs):
            if elapsed_steps == 30:
                os.kill(os.getpid(), signal.Signals[name])

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    folder, algorithm = RunFolder(tmp_path, "run"), CountingAlgorithm()
    options = {"folder": folder, "callbacks": [Signalling()]}
    result = make_runner(ListSampler([]), algorithm, **options).run()
    assert (result.elapsed_steps, result.stopped_by) == (30, name)
    assert len(algorithm.calls) == 3
    assert folder.checkpoints.load_newest()[1]["elapsed_steps"] == 30
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_a_second_signal_ends_it_at_once(make_runner):
    class Impatient(Callback):
        def before_optimization(self, elapsed_steps):
            if elapsed_steps == 30:
                for _ in range(2):
                    os.kill(os.getpid(), signal.SIGINT)

    algorithm = CountingAlgorithm()
    runner = make_runner(ListSampler([]), algorithm, callbacks=[Impatient()])
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert len(algorithm.calls) == 2


def test_a_callback_ends_the_run_behind_the_batch(make_runner):
    class Content(Callback):
        def start(self, runner):
            self.runner = runner

        def after_sampling(self, elapsed_steps, samples, trajs):
            if elapsed_steps == 20:
                self.runner.stop("enough")

    algorithm = CountingAlgorithm()
    runner = make_runner(ListSampler([]), algorithm, callbacks=[Content()])
    result = runner.run()
    assert (result.elapsed_steps, result.stopped_by, len(algorithm.calls)) == (20, "enough", 2)


def test_a_signal_in_the_first_evaluation_ends_the_run_before_a_batch(make_runner, tmp_path):
    class Interrupt(Callback):
        def after_evaluation(self, elapsed_steps, trajs):
            os.kill(os.getpid(), signal.SIGTERM)

    folder, sampler = RunFolder(tmp_path, "run"), ListSampler([])
    options = {"eval_sampler": ListSampler([traj(1)]), "folder": folder}
    result = make_runner(sampler, callbacks=[Interrupt()], **options).run()
    assert (result.stopped_by, result.elapsed_steps, sampler.elapsed) == ("SIGTERM", 0, [])
    assert folder.checkpoints.load_newest()[1]["elapsed_steps"] == 0


def test_what_callbacks_draw_at_the_start_does_not_change_a_resumed_run(make_runner):
    class Drawing(Callback):
        def start(self, runner):
            self.drawn = [np.random.random(7)]

        def after_sampling(self, elapsed_steps, samples, trajs):
            self.drawn.append(np.random.random())

    def run(runner):
        runner.run()
        return runner.callbacks[0].drawn[1:]

    np.random.seed(3)
    uninterrupted = run(make_runner(ListSampler([]), callbacks=[Drawing()], n_steps=60))
    np.random.seed(3)
    runner = make_runner(ListSampler([]), callbacks=[Drawing()], n_steps=20)
    drawn = run(runner)
    state = runner.state()
    np.random.seed(4)
    resumed = make_runner(ListSampler([]), callbacks=[Drawing()], n_steps=60)
    resumed.load_state(state)
    assert drawn + run(resumed) == uninterrupted


class Recorder(Callback):
    """Note every call."""

    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    def start(self, runner):
        self.calls.append((self.name, "start"))

    def before_sampling(self, elapsed_steps):
        self.calls.append((self.name, "before_sampling", elapsed_steps))

    def after_sampling(self, elapsed_steps, samples, trajs):
        self.calls.append((self.name, "after_sampling", elapsed_steps, samples, len(trajs)))

    def before_optimization(self, elapsed_steps):
        self.calls.append((self.name, "before_optimization", elapsed_steps))

    def after_optimization(self, elapsed_steps, diagnostics):
        self.calls.append((self.name, "after_optimization", elapsed_steps, diagnostics["loss"]))

    def before_evaluation(self, elapsed_steps):
        self.calls.append((self.name, "before_evaluation", elapsed_steps))

    def after_evaluation(self, elapsed_steps, trajs):
        self.calls.append((self.name, "after_evaluation", elapsed_steps, len(trajs)))

    def before_row(self, elapsed_steps):
        self.calls.append((self.name, "before_row", elapsed_steps))

    def close(self):
        self.calls.append((self.name, "close"))


def test_callbacks_are_called_in_order(make_runner):
    calls = []
    make_runner(
        ListSampler([traj(1)]),
        eval_sampler=ListSampler([traj(1), traj(2)]),
        n_steps=10,
        callbacks=[Recorder("a", calls)],
    ).run()
    assert [call[1:] for call in calls] == [
        ("start",),
        ("before_evaluation", 0),
        ("after_evaluation", 0, 2),
        ("before_row", 0),
        ("before_sampling", 0),
        ("after_sampling", 10, "batch 1", 1),
        ("before_optimization", 10),
        ("after_optimization", 10, 0.5),
        ("before_evaluation", 10),
        ("after_evaluation", 10, 2),
        ("before_row", 10),
        ("close",),
    ]


def test_a_callback_logs_into_rows(make_runner, writer):
    class Counting(Callback):
        def start(self, runner):
            self.runner, self.n_batches = runner, 0

        def after_sampling(self, elapsed_steps, samples, trajs):
            self.n_batches += 1

        def before_row(self, elapsed_steps):
            self.runner.logger.log_value("batches", self.n_batches)

    make_runner(ListSampler([]), callbacks=[Counting()]).run()
    assert {step: row["batches"] for step, row in writer.rows.items()} == {
        0: 0,
        20: 2,
        40: 4,
        60: 6,
    }


def test_callbacks_are_closed_when_one_raises(make_runner):
    class Failing(Callback):
        def before_sampling(self, elapsed_steps):
            raise ZeroDivisionError("on purpose")

    calls = []
    runner = make_runner(
        ListSampler([]), callbacks=[Recorder("a", calls), Failing(), Recorder("b", calls)]
    )
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        runner.run()
    assert [call for call in calls if call[1] == "close"] == [("b", "close"), ("a", "close")]
    assert ("b", "before_sampling", 0) not in calls


def test_the_state_of_another_run_is_refused(make_runner):
    state = make_runner(ListSampler([])).state()
    with pytest.raises(
        ValueError, match=r"expected the states of \['algorithm', 'sampler'\], got \["
    ):
        make_runner(ListSampler([])).load_state({**state, "parts": {}})
    parts = {**state["parts"], "algorithm": {"epochs": 3}}
    with pytest.raises(ValueError, match="algorithm: KeyError: 'calls'"):
        make_runner(ListSampler([])).load_state({**state, "parts": parts})


def test_callbacks_may_differ_when_a_run_goes_on(make_runner):
    class Counter(Callback):
        n = 0

        def before_sampling(self, elapsed_steps):
            self.n += 1

        def state(self):
            return {"n": self.n}

        def load_state(self, state):
            self.n = state["n"]

    counter = Counter()
    runner = make_runner(ListSampler([]), callbacks=[Callback(), counter])
    runner.run()
    again = Counter()
    other = make_runner(ListSampler([]), callbacks=[again, Recorder("new", [])])
    other.load_state(runner.state())
    assert counter.n == again.n == 6


def test_the_account_of_time_is_logged_and_said(make_runner, writer):
    make_runner(ListSampler([]), eval_sampler=ListSampler([traj(1)])).run()
    for row in list(writer.rows.values())[1:]:
        seconds = {name: value for name, value in row.items() if name.startswith("time/")}
        assert set(seconds) == {
            "time/steps_per_second",
            *(f"time/{stage}_s" for stage in STAGES),
        }
        assert min(seconds.values()) >= 0
    last = writer.messages[-1]
    assert last[0] == "notice"
    assert last[1].startswith("time went to\nsampling ")


def test_wrong_arguments(make_runner):
    with pytest.raises(ValueError, match="n_steps: expected at least 1, got 0"):
        make_runner(ListSampler([]), n_steps=0)
    with pytest.raises(ValueError, match="log_interval_steps: expected at least 1, got -1"):
        make_runner(ListSampler([]), log_interval_steps=-1)
    with pytest.raises(ValueError, match="target_return: expected an eval_sampler"):
        make_runner(ListSampler([]), target_return=1.0)
    with pytest.raises(ValueError, match="keep_checkpoints: expected at least 1, got 0"):
        make_runner(ListSampler([]), keep_checkpoints=0)


def test_a_real_sampler_and_its_statistics(make_runner, writer, tmp_path):
    factories = (partial(CountingEnv, 3), partial(CountingEnv, 4))
    parts = SamplerSetup(5, factories, step_transforms=(DOUBLED, SHIFTED)).build()
    folder = RunFolder(tmp_path, "run")
    with BasicSampler(
        parts.batch_spec, parts.cages, parts.handler, parts.samples, parts.step_transforms
    ) as sampler:
        make_runner(sampler, folder=folder, state_parts={"agent": parts.handler.agent}).run()
    assert writer.rows[60]["sampler/RecordingStepTransform/batches"] == 6
    # 30 steps of each: ten episodes of length 3, seven of length 4.
    counts = [row["training/length/count"] for row in writer.rows.values()]
    assert sum(counts) == 17
    parts_of = folder.checkpoints.load_newest()[1]["parts"]
    assert parts_of["sampler"]["transforms"] == [{"batches": 6}, {"batches": 6}]
    assert parts_of["sampler"]["batches"] == 6
    assert parts_of["agent"] == parts.handler.agent.state()
    # One batch of each row is looked into.
    assert writer.rows[60]["time/inference_s"] > 0
    assert writer.rows[60]["time/waiting_s"] > 0
