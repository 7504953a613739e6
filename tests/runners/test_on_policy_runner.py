from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from listed_runs import CountingAlgorithm, ListSampler, traj

from parllel.algos import TransformingAlgorithm
from parllel.runners import row_log
from parllel.runners.row_log import STAGES
from parllel.runs import RunFolder
from parllel.samplers import BasicSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_contract import DOUBLED, SHIFTED
from parllel.testing.sampler_setup import SamplerSetup


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


class SeveralWays(CountingAlgorithm):
    """An algorithm that learns from its first batches in other ways than from the rest."""

    def optimize_agent(self, elapsed_steps, samples):
        self.update_method = {20: "slow", 40: "fast"}.get(elapsed_steps, self.update_method)
        return super().optimize_agent(elapsed_steps, samples)


def test_the_way_of_updates_is_logged_when_it_changes(make_runner, writer):
    algorithm = SeveralWays()
    make_runner(ListSampler([]), algorithm).run()
    assert TransformingAlgorithm(algorithm, []).update_method == "fast"
    said = [text for level, text in writer.messages if "method" in text]
    assert said == [f"updates are computed by the method {name!r}" for name in ("slow", "fast")]


class LateImports(CountingAlgorithm):
    """An algorithm that imports something when it is prepared; its clock is moved by that alone."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.done = clock, []

    def prepare(self):
        self.clock[0] += 7.0
        self.done.append("prepare")

    def state(self):
        self.done.append("state")
        return super().state()


def test_what_an_algorithm_imports_late_is_no_part_of_a_checkpoint(
    make_runner, writer, monkeypatch, tmp_path
):
    clock = [0.0]
    monkeypatch.setattr(row_log.time, "perf_counter", lambda: clock[0])
    algorithm = LateImports(clock)
    make_runner(ListSampler([]), algorithm, folder=RunFolder(tmp_path, "run")).run()
    assert algorithm.done[:2] == ["prepare", "state"]
    assert algorithm.done.count("prepare") == 1
    assert [row["time/imports_s"] for row in writer.rows.values()] == [7, 0, 0]
    assert {row["time/checkpoints_s"] for row in writer.rows.values()} == {0}
    assert writer.messages[-1] == (
        "notice",
        "time went to\n"
        "imports             7.0 s 100.0%\n"
        "all                 7.0 s, 0.0 s without imports and compiling",
    )


@pytest.mark.parametrize(("compiled_s", "named"), [(7.6, True), (0.1, False)])
def test_a_first_run_names_what_it_compiled_before(
    make_runner, writer, monkeypatch, compiled_s, named
):
    monkeypatch.setattr(row_log, "seconds_compiling", lambda: compiled_s)
    monkeypatch.setattr(row_log.TimeAccount, "_seen_compiling_s", 0.0)
    make_runner(ListSampler([])).run()
    said = ("notice", "functions were compiled for 7.6 s; later runs load them from a cache")
    assert (said in writer.messages) == named


def test_wrong_arguments(make_runner):
    with pytest.raises(ValueError, match="n_steps: expected at least 1, got 0"):
        make_runner(ListSampler([]), n_steps=0)
    with pytest.raises(ValueError, match="log_interval_steps: expected at least 1, got -1"):
        make_runner(ListSampler([]), log_interval_steps=-1)
    with pytest.raises(ValueError, match="target_return: requires an eval_sampler"):
        make_runner(ListSampler([]), target_return=1.0)
    with pytest.raises(ValueError, match="target_return: expected a number or None, got nan"):
        make_runner(ListSampler([]), target_return=float("nan"))
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
    assert writer.rows[60]["time/environments_s"] > 0
