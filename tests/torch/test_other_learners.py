"""Several learners of SAC and TD3, and with an asynchronous sampler, against one with the whole batch."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from other_learner_runs import Config, build, build_asynchronous

from parllel.buffers.tree import buffer_leaves
from parllel.errors import WorkerDiedError
from parllel.runners import resume, train
from parllel.testing.resume_contract import assert_equal_states


@pytest.fixture(autouse=True)
def fonts(open_fonts):
    """Plot once before the first test."""


def run(build_run, config, base, **options):
    """Train; return the last checkpoint's state and the rows of the log."""
    _, folder = train(build_run, config, base=base, **options)
    assert not (folder.path / "learners").exists()
    return state_of(folder), rows_of(folder)


def state_of(folder):
    return folder.checkpoints.load_newest(warn=lambda text: None)[1]


def rows_of(folder):
    lines = (folder.path / "progress.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if "step" in row]


def compare(two, one, rows_of_two, rows):
    for name in ("agent", "algorithm"):
        found = dict(buffer_leaves(two["parts"][name]))
        for path, expected in buffer_leaves(one["parts"][name]):
            if isinstance(expected, np.ndarray) and expected.dtype.kind == "f":
                np.testing.assert_allclose(found[path], expected, rtol=0, atol=1e-6, err_msg=path)
    assert len(rows) == len(rows_of_two) > 2
    for expected, found in zip(rows, rows_of_two, strict=True):
        for key, value in expected.items():
            if key.startswith(("algorithm/", "training/", "step", "replay/updates")):
                np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize(
    ("kind", "update"), [("sac", "auto"), ("sac", "autograd"), ("td3", "auto")]
)
@pytest.mark.few(1)
def test_two_learners_equal_one_with_the_whole_batch(kind, update, tmp_path):
    config = Config(kind=kind, update=update, made_up=True)
    one, rows = run(build, replace(config, learners=1), tmp_path)
    two, rows_of_two = run(build, config, tmp_path)
    assert one["off_policy"]["n_updates"] == two["off_policy"]["n_updates"] == 64
    compare(two, one, rows_of_two, rows)


def test_two_learners_equal_one_while_the_next_batch_is_sampled(tmp_path):
    config = Config(made_up=True, T=8)
    one, rows = run(build_asynchronous, replace(config, learners=1), tmp_path)
    two, rows_of_two = run(build_asynchronous, config, tmp_path)
    compare(two, one, rows_of_two, rows)
    assert rows_of_two[-1]["sampler/staleness"] == 1


@pytest.mark.parametrize("during", ["learn", "checkpoint"])
@pytest.mark.few(1)
def test_a_killed_learner_ends_the_run_which_resumes_to_the_same_numbers(during, tmp_path):
    whole, _ = run(build, Config(), tmp_path)
    doing = {"learn": "learn", "checkpoint": "state"}[during]
    with pytest.raises(
        WorkerDiedError, match=rf"^learner 1: process \d+ was killed by SIGKILL during {doing}"
    ):
        train(build, Config(fault="kill", during=during), base=tmp_path, name="killed")
    _, folder = resume(tmp_path / "killed", changes={"fault": ""})
    found = state_of(folder)
    for state in (whole, found):
        for name in ("time", "callbacks", "row"):
            del state[name]
    assert_equal_states(found, whole)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"batch_size": 9}, ValueError, "a batch size that 2 learners can share equally, got 9"),
        ({"mistake": "prioritized"}, TypeError, "expected a UniformReplay.*PrioritizedReplay"),
        ({"mistake": "own update"}, TypeError, "OwnUpdate does not support .* overrides policy_"),
        ({"mistake": "other batch size"}, ValueError, "same batch_size, got 4 .* 5 from learner 1"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(changes, error, text, tmp_path):
    with pytest.raises(error, match=text):
        train(build, replace(Config(), **changes), base=tmp_path)


def test_statistics_of_some_columns_are_refused_in_a_sampling_process(tmp_path):
    with pytest.raises(
        TypeError, match="NormalizeAdvantage cannot be used in the sampling process"
    ):
        train(build_asynchronous, Config(mistake="mixing"), base=tmp_path)
