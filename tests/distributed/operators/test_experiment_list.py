"""The list of experiments below a folder, and the results of one of them."""

from __future__ import annotations

import json
import time

import pytest

from parllel.distributed.operators import Experiment, OperatorConfig
from parllel.distributed.operators.experiments.experiment_folder import ExperimentFolder
from parllel.distributed.operators.experiments.experiment_list import (
    experiment_results,
    list_experiments,
)

CARTPOLE = "CartPole-v1"


def board(base):
    """Write the folder of a board on which nothing was played."""
    operators = [{"operator_id": name, "env_id": CARTPOLE} for name in "ab"]
    values = {"name": "board", "operators": operators, "episodes": None}
    with ExperimentFolder(base, values) as folder:
        return folder.path


def test_an_experiment_is_listed_with_its_results(tmp_path):
    operators = [
        OperatorConfig("baseline", name, CARTPOLE, policy=name) for name in ("random", "noop")
    ]
    began = time.time()
    result = Experiment("pair", operators, seeds=range(6)).run(tmp_path / "runs" / "first")
    (one,) = list_experiments(tmp_path / "runs")
    assert began - 1 <= one.pop("time") <= time.time()
    assert one == {
        "run": "first/pair",
        "name": "pair",
        "folder": str(result.folder),
        "state": "finished",
        "operators": ["random", "noop"],
        "n_done": 12,
        "n_episodes": 12,
    }
    found = experiment_results(tmp_path / "runs", "first/pair")
    assert (found["run"], found["name"], found["state"]) == ("first/pair", "pair", "finished")
    written = json.loads((result.folder / "results.json").read_text())["results"]
    assert json.loads(json.dumps(found["groups"])) == written
    (group,) = found["groups"]
    assert group["label"] == CARTPOLE
    (difference,) = group["differences"]
    assert difference["is_clear"]
    assert group["sentences"][0].startswith("noop gains less than random: -")


def test_the_newest_is_first_and_what_is_damaged_hides_nothing(tmp_path):
    paths = [board(tmp_path) for _ in range(3)]
    for path, created in zip(paths, ("2026-01-02", "2026-01-03", "2026-01-01"), strict=True):
        record = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(
            json.dumps({**record, "created": f"{created}T10:00:00+00:00"})
        )
    damaged = board(tmp_path)
    (damaged / "config.json").write_text("{")
    assert [one["run"] for one in list_experiments(tmp_path)] == ["board-2", "board", "board-3"]
    with pytest.raises(ValueError, match=r"board-4/config.json: damaged"):
        experiment_results(tmp_path, "board-4")
    assert list_experiments(tmp_path / "nowhere") == []


@pytest.mark.parametrize("run", ["", ".", "nothing", "../other/board", "/etc", "inside", "a\0b"])
def test_a_name_leads_nowhere_else(tmp_path, run):
    board(tmp_path / "other")
    base = tmp_path / "base"
    base.mkdir()
    (base / "inside").symlink_to(tmp_path / "other" / "board")
    with pytest.raises(KeyError, match="expected the path of an experiment below it, got"):
        experiment_results(base, run)
