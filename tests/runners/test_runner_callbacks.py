from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from listed_runs import CountingAlgorithm, ListSampler, traj

from parllel.runners import Callback
from parllel.runs import RunFolder


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_run_after_the_batch(make_runner, tmp_path, capfd, name):
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
    # There is no bar that could say so.
    said = capfd.readouterr().err.splitlines()[0]
    assert said == f"{name}: stopping after this batch; repeat it to stop at once"
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


def test_a_callback_ends_the_run_after_the_batch(make_runner):
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
    with pytest.raises(ValueError, match=r"algorithm: .* needs 'calls', .* only \['epochs'\]"):
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


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (Callback(), "callbacks: expected a list of Callbacks, got <"),
        ([Callback], "callbacks: expected Callbacks, got <class .*; call it"),
        ([None], "callbacks: expected Callbacks, got None"),
    ],
)
def test_what_is_no_callback_is_refused(make_runner, callbacks, message):
    with pytest.raises(TypeError, match=message):
        make_runner(ListSampler([]), callbacks=callbacks)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("after_eval", r"after_; did you mean after_evaluation\?$"),
        ("before_samplings", r"after_; did you mean before_sampling\?$"),
        ("after_batch", r"one of the hooks before_sampling, .*, before_row, as .* or after_$"),
    ],
)
def test_a_method_that_is_nearly_a_hook_is_refused(name, message):
    with pytest.raises(TypeError, match=rf"^Misspelt\.{name}: .*{message}"):
        type("Misspelt", (Callback,), {name: lambda self, elapsed_steps: None})


def test_what_does_not_look_like_a_hook_may_have_any_name():
    class Own(Callback):
        after_steps = 100  # a number is not called

        def _after_batch(self):
            pass

        def remember(self):
            pass

    assert Own().after_steps == 100
