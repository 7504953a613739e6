"""Several learners against one with the whole batch, and what happens when one of them is lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_runs import Config, build

from parllel.errors import ClosedError, WorkerDiedError, WorkerError, WorkerTimeoutError
from parllel.runners import resume, train
from parllel.runs import RunFolder
from parllel.testing.resume_contract import assert_equal_states
from parllel.torch import Learners

KILL = Config(real=True, fault="kill")


@pytest.fixture(autouse=True)
def fonts(open_fonts):
    """Plot once before the first test."""


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """A folder for temporary files, in which learners leave nothing behind."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    # PyTorch and the fork server keep theirs.
    assert [*folder.glob("parllel-learners*")] == []


def run(config, base):
    """Train; return the last checkpoint's state and the rows of the log."""
    _, folder = train(build, config, base=base)
    assert not (folder.path / "learners").exists()
    return state_of(folder), rows_of(folder)


def state_of(folder):
    return folder.checkpoints.load_newest(warn=lambda text: None)[1]


def rows_of(folder):
    lines = (folder.path / "progress.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if "step" in row]


def weights(state):
    return state["parts"]["agent"]["model"]


def exact(state):
    """Return the part of a state that does not depend on time, or on where a run was interrupted."""
    row = {
        k: v for k, v in state["row"].items() if k not in ("algorithm", "training", "evaluation")
    }
    return {**{k: v for k, v in state.items() if k not in ("time", "callbacks")}, "row": row}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, open_fonts):
    """The final state of a run that nothing happens to."""
    state, _ = run(replace(KILL, fault=""), tmp_path_factory.mktemp("whole"))
    return exact(state)


@pytest.mark.parametrize("update", ["autograd", "auto", "flat"])
@pytest.mark.parametrize("head", ["categorical", "gaussian"])
@pytest.mark.few(2)
def test_two_learners_equal_one_with_the_whole_batch(update, head, tmp_path):
    # 10 batches of 2 epochs of 3 minibatches: 60 updates.
    config = Config(update=update, head=head)
    one, rows = run(replace(config, learners=1), tmp_path)
    two, rows_of_two = run(config, tmp_path)
    for name, expected in weights(one).items():
        np.testing.assert_allclose(weights(two)[name], expected, rtol=0, atol=1e-6, err_msg=name)
    assert len(rows) == len(rows_of_two) > 4
    for expected, found in zip(rows, rows_of_two, strict=True):
        for key, value in expected.items():
            if key.startswith(("algorithm/", "training/", "evaluation/", "sampler/", "step")):
                np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


def test_learners_of_new_interpreters_train_alike(tmp_path):
    config = Config(n_steps=64, start_method="forkserver")
    found, _ = run(config, tmp_path)
    expected, _ = run(replace(config, start_method="fork"), tmp_path)
    assert_equal_states(weights(found), weights(expected))


@pytest.mark.parametrize("during", ["sample", "learn", "checkpoint"])
@pytest.mark.few(1)
def test_a_killed_learner_ends_the_run_which_resumes_to_the_same_numbers(
    during, uninterrupted, tmp_path
):
    doing = {"sample": "batch", "learn": "learn", "checkpoint": "state"}[during]
    with pytest.raises(
        WorkerDiedError, match=rf"^learner 1: process \d+ was killed by SIGKILL during {doing}"
    ):
        train(build, replace(KILL, during=during), base=tmp_path, name="killed")
    assert not (tmp_path / "killed" / "learners").exists()
    _, folder = resume(tmp_path / "killed", changes={"fault": ""})
    assert_equal_states(exact(state_of(folder)), uninterrupted)


def test_a_loaded_run_can_be_saved_before_it_goes_on(tmp_path):
    _, folder = train(build, Config(n_steps=64), base=tmp_path)
    saved = state_of(folder)
    with ExitStack() as stack:
        runner = build(Config(n_steps=128), stack, RunFolder(tmp_path, "other"), None)
        runner.load_state(saved)
        assert_equal_states(runner.state()["learners"], saved["learners"])
        runner.run()
        assert runner.result.elapsed_steps == 128
    with pytest.raises(ClosedError, match="learner 1: used after it was closed"):
        runner.cycle.state()


def in_process(config, base):
    """Train in another process, without a runner's report of errors; return the process."""
    process = multiprocessing.get_context("fork").Process(
        target=train, args=(build, config), kwargs={"base": base, "name": "killed"}
    )
    process.start()
    return process


@pytest.mark.parametrize("during", ["sample", "learn", "checkpoint"])
@pytest.mark.few(2)
def test_a_run_whose_first_learner_is_killed_resumes_to_the_same_numbers(
    during, uninterrupted, tmp_path
):
    first = in_process(replace(KILL, during=during, who=0), tmp_path)
    first.join(40)
    assert first.exitcode == -signal.SIGKILL
    first.close()
    # The guard against leaks finds other learners, should they still run.
    _, folder = resume(tmp_path / "killed", changes={"fault": ""})
    assert_equal_states(exact(state_of(folder)), uninterrupted)
    assert not (folder.path / "learners").exists()


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("during", ["sample", "learn"])
def test_an_error_of_a_learner_is_raised_by_the_first(who, during, tmp_path):
    with pytest.raises(ArithmeticError, match="no luck today") as caught:
        train(build, Config(fault="raise", during=during, who=who), base=tmp_path, name="failed")
    notes = " ".join(getattr(caught.value, "__notes__", []))
    assert ("learner 1" in notes) == (who == 1)
    assert not (tmp_path / "failed" / "learners").exists()


@pytest.mark.parametrize(
    ("during", "doing"), [("sample", "batch"), ("learn", "learn"), ("checkpoint", "state")]
)
@pytest.mark.few(1)
def test_a_stopped_learner_is_found_by_the_time_limit(during, doing, tmp_path):
    config = Config(learners=3, B=6, fault="stop", during=during, who=2, timeout_s=6.0)
    begin = time.monotonic()
    with pytest.raises(
        WorkerTimeoutError, match=rf"^learner 2.* did not answer within 6 s during {doing}"
    ):
        train(build, config, base=tmp_path)
    assert time.monotonic() - begin < 40


def test_the_others_do_not_wait_for_ever_for_a_stopped_first_learner(tmp_path):
    first = in_process(Config(fault="stop", during="learn", who=0, timeout_s=4.0), tmp_path)
    try:
        children = f"/proc/{first.pid}/task/{first.pid}/children"
        _until(lambda: _state(first.pid) == "T")
        with open(children) as file:
            (other,) = map(int, file.read().split())
        _until(lambda: _state(other) in ("Z", None))
    finally:
        os.kill(first.pid, signal.SIGCONT)
        first.join(30)
    assert first.exitcode == 1
    first.close()


def _state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def _until(condition, timeout_s=40.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_learner_that_dies_while_it_builds_is_noticed(tmp_path, monkeypatch):
    # Inherited by the other learner, which is forked.
    monkeypatch.setattr("parllel.torch.learner_process.LearnerProcess._make", die_while_building)
    with pytest.raises(WorkerDiedError, match=r"^learner 1: .* killed by SIGKILL during build"):
        train(build, Config(), base=tmp_path)


def die_while_building(self):
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"B": 5}, ValueError, "that 2 learners can share equally, got B=5"),
        ({"learners": 0}, ValueError, "Learners: n: expected at least 1, got 0"),
        ({"timeout_s": 0}, ValueError, "timeout_s: expected a positive number of seconds, got 0"),
        ({"mistake": "own loss"}, TypeError, "OwnLoss does not support .* overrides loss"),
        (
            {"mistake": "unknown transform"},
            TypeError,
            "Unknown cannot be used with several learners",
        ),
        (
            {"mistake": "same seeds"},
            ValueError,
            "environments of learners 0 and 1 have the same seed",
        ),
        (
            {"mistake": "other sizes"},
            ValueError,
            r"same size, got .*B=2.* from learner 0 and .*B=3.* from learner 1",
        ),
        ({"mistake": "no learners"}, TypeError, "expected the build function to pass learners="),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(changes, error, text, tmp_path):
    config = replace(Config(update="autograd"), **changes)
    with pytest.raises(error, match=text):
        train(build, config, base=tmp_path)


def test_weights_that_are_changed_in_one_learner_end_the_run(tmp_path):
    with pytest.raises(
        WorkerError, match=r"^learner 1: its weights differ from those of learner 0"
    ):
        train(build, Config(mistake="one callback"), base=tmp_path)


def test_a_checkpoint_belongs_to_its_number_of_learners(tmp_path):
    _, folder = train(build, Config(n_steps=64), base=tmp_path)
    for n in (1, 4):
        with pytest.raises(ValueError, match=f"learners: expected as many .*, 2, got {n}"):
            resume(folder.path, changes={"learners": n, "n_steps": 128})


def test_they_cannot_be_used_before_the_start_or_after_the_end():
    learners = Learners(2, build, Config())
    with pytest.raises(ClosedError, match="before the run has started"):
        learners.add(np.zeros(1))
    learners.close()
    learners.close()
    with pytest.raises(ClosedError, match="used after close"):
        learners.start(None)


def test_the_number_of_learners_is_an_int():
    for n in (2.0, True):
        with pytest.raises(TypeError, match=f"Learners: n: expected an int, got {n}"):
            Learners(n, build, Config())


def test_seeds_differ_and_those_of_the_first_are_the_runs():
    assert Learners(2, build, Config()).seeds(3).entropy == 3
    other = Learners(2, build, Config())
    other.rank = 1
    assert other.seeds(3).entropy not in (3, other.seeds(4).entropy)


def test_the_number_of_threads_is_restored(tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train(build, Config(n_steps=64), base=tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
