from __future__ import annotations

import json
import os
import platform
import re
import sys
import threading
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from parllel.runs import Checkpoints, RunFolder, versions
from parllel.runs.run_record import git_state
from parllel.seeding import Seeds


@dataclass(frozen=True)
class Config:
    seed: int = 3
    sizes: tuple[int, ...] = (64, 64)
    nested: dict = field(default_factory=lambda: {"rate": 1e-3})
    path: Path = Path("somewhere")


def build(config, stack, folder, console):
    raise AssertionError("nobody runs this one")


def test_folders_of_one_name_are_numbered(tmp_path):
    names = [RunFolder(tmp_path / "runs" / "deep", "ppo").path.name for _ in range(3)]
    assert names == ["ppo", "ppo-2", "ppo-3"]
    assert sorted(path.name for path in (tmp_path / "runs" / "deep").iterdir()) == names


def test_the_default_name_is_the_time(tmp_path):
    name = RunFolder(tmp_path).path.name
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-\d{6}", name)


def test_two_at_once_get_folders_of_their_own(tmp_path):
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(RunFolder(tmp_path, "ppo").path))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8


def test_the_start_of_a_run_is_written_down(tmp_path):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(build, Config())
    files = {path.name: path for path in folder.path.iterdir()} | {"git.diff": None}
    assert set(files) == {"config.json", "git.diff", "run.json", "versions.json"}
    config = {"seed": 3, "sizes": [64, 64], "nested": {"rate": 0.001}, "path": "somewhere"}
    assert json.loads(files["config.json"].read_text()) == config
    assert json.loads(files["versions.json"].read_text()) == versions() == folder.read_versions()
    record = folder.read_record()
    assert record.config == config
    assert record.build_function.name == f"{__name__}:build"
    assert record.build_function.file == __file__
    assert record.config_class.name == f"{__name__}:Config"
    assert record.kind == "training"
    assert record.command == sys.orig_argv
    assert record.working_directory == os.getcwd()
    age = datetime.now().astimezone() - datetime.fromisoformat(record.created)
    assert 0 <= age.total_seconds() < 60
    assert (record.history, record.outcome, record.repeats) == ([], None, None)
    assert record.build() is build
    assert record.read_config() == Config()
    assert record.read_config({"seed": "4", "sizes": "[1]"}) == Config(4, (1,))


def test_a_config_may_be_a_dict(tmp_path):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(build, {"T": 4, "ppo": {"rate": 0.5}})
    assert json.loads((folder.path / "config.json").read_text()) == {"T": 4, "ppo": {"rate": 0.5}}
    record = folder.read_record()
    assert record.config_class is None
    assert record.read_config({"ppo.rate": "1"}) == {"T": 4, "ppo": {"rate": 1.0}}
    with pytest.raises(ValueError, match=r"unknown key 'ppo.rat'; did you mean 'ppo.rate'"):
        record.read_config({"ppo.rat": "1"})


def test_a_run_of_another_kind_has_no_build_function(tmp_path):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(None, {"players": 2}, kind="experiment", source=Path(__file__).parent)
    record = folder.read_record()
    assert (record.kind, record.build_function, record.config_class) == ("experiment", None, None)
    assert record.read_config({"players": "3"}) == {"players": 3}
    assert record.command == sys.orig_argv
    assert record.git == git_state(Path(__file__).parent)[0]
    assert folder.read_versions() == versions()
    with pytest.raises(
        ValueError, match=r"expected a training run, got one of kind 'experiment', .*runs"
    ):
        record.build()


def test_a_folder_that_names_no_kind_is_that_of_a_training_run(tmp_path):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(build, Config())
    record = json.loads((folder.path / "run.json").read_text())
    del record["kind"]  # as in folders of earlier versions
    (folder.path / "run.json").write_text(json.dumps(record))
    assert folder.read_record().kind == "training"
    assert folder.read_record().build() is build


@pytest.mark.parametrize(
    ("kind", "function", "message"),
    [
        (
            "Two words",
            None,
            "kind: expected one lower-case word, such as 'training', got 'Two words'",
        ),
        ("training", None, "a run of kind 'training': expected a build function, got None"),
        (
            "experiment",
            build,
            "a run of kind 'experiment': expected no build function, got <function",
        ),
    ],
)
def test_a_kind_goes_with_its_build_function(tmp_path, kind, function, message):
    folder = RunFolder(tmp_path, "run")
    with pytest.raises(ValueError, match=message):
        folder.write_record(function, {}, kind=kind)
    assert list(folder.path.iterdir()) == []


def test_a_config_that_json_does_not_know_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"^thing: expected numbers, .* got <object"):
        RunFolder(tmp_path, "run").write_record(build, {"thing": object()})


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda *arguments: None, "it is a lambda"),
        (partial(build), "it is a partial, and no function or class of a module"),
    ],
)
def test_what_cannot_be_found_again_is_noted(tmp_path, function, why):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(function, {"seed": 1})
    record = RunFolder.open(folder.path).read_record()
    with pytest.raises(ValueError, match=f"cannot be found again: {why}"):
        record.build()
    assert record.read_config() == {"seed": 1}


def test_a_config_whose_class_has_changed(tmp_path):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(build, Config())
    (folder.path / "config.json").write_text('{"sede": 1}')
    with pytest.raises(ValueError, match=r"config\.json does not fit Config: unknown key 'sede'"):
        folder.read_record().read_config()


def test_what_becomes_of_a_run_is_noted(tmp_path):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(build, Config())
    folder.note_outcome({"elapsed_steps": 20, "stopped_by": "SIGINT"})
    outcome = folder.read_record().outcome
    assert (outcome["elapsed_steps"], outcome["stopped_by"]) == (20, "SIGINT")
    assert datetime.fromisoformat(outcome["ended"]).tzinfo is not None
    folder.note_resume(20, {"seed": "9"}, Config(9))
    folder.note_resume(25, {}, Config(1))  # nothing changed, nothing written
    record = folder.read_record()
    assert record.outcome is None  # until it has ended again
    assert [(entry["step"], entry["changes"]) for entry in record.history] == [
        (20, {"seed": "9"}),
        (25, {}),
    ]
    assert record.config["seed"] == 9
    assert not list(folder.path.glob("*.tmp"))


def test_seeds_and_allocators(tmp_path):
    folder = RunFolder(tmp_path, "run")
    seeds = Seeds(12)
    seeds.integer("model")
    folder.write_seeds(seeds)
    folder.write_allocators({"env.reward": {"class": "Array", "shape": [4]}})
    found = json.loads((folder.path / "seeds.json").read_text())
    assert found == {"entropy": 12, "given": {"model": Seeds(12).integer("model")}}
    assert Seeds.load(folder.path / "seeds.json").entropy == 12
    found = json.loads((folder.path / "allocators.json").read_text())
    assert found == {"env.reward": {"class": "Array", "shape": [4]}}


def test_checkpoints_lie_in_a_folder_of_their_own(tmp_path):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(build, Config())
    assert isinstance(folder.checkpoints, Checkpoints)
    path = folder.checkpoints.save(20, {"elapsed_steps": 20})
    assert path.parent == folder.path / "checkpoints"
    assert RunFolder.open(folder.path).checkpoints.load_newest() == (path, {"elapsed_steps": 20})


def test_versions_are_those_of_this_interpreter(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--seed", "7"])
    found = versions()
    assert found["python"] == platform.python_version()
    assert found["numpy"] == np.__version__
    assert found["command"] == "train.py --seed 7"


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        RunFolder(tmp_path / "file", "run")
    with pytest.raises(OSError, match="/proc"):
        RunFolder("/proc/runs", "run")


def test_a_link_that_leads_nowhere_is_an_error(tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path / "unmounted" / "runs")
    with pytest.raises(OSError, match="runs"):
        RunFolder(tmp_path / "runs", "run")


def test_folders_that_are_no_runs(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing: there is no such folder"):
        RunFolder.open(tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file: expected the folder of a run, got a file"):
        RunFolder.open(tmp_path / "file")
    with pytest.raises(ValueError, match=r"not the folder of a run, because it has no run\.json"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("name", ["run.json", "config.json"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r": damaged: Expecting"),
        (b"", r": damaged: Expecting"),
        (b"[1]", r": damaged: expected a dict, got \[1\]"),
        (b"\xff\xfe", r": damaged: .*utf-8"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, message):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(build, Config())
    (folder.path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(folder.path / name)) + message):
        RunFolder.open(folder.path).read_record()


@pytest.mark.parametrize(
    "damage",
    [{"build": None}, {"build": {"nome": 1}}, {"kind": 5}, {"kind": "experiment"}, "command"],
)
def test_a_record_of_another_form_is_damaged(tmp_path, damage):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(build, Config())
    record = json.loads((folder.path / "run.json").read_text())
    if isinstance(damage, str):
        del record[damage]
    else:
        record.update(damage)
    (folder.path / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"run\.json: damaged: \w+Error"):
        folder.read_record()


def test_a_record_of_a_later_version_may_hold_more(tmp_path):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(build, Config())
    record = json.loads((folder.path / "run.json").read_text())
    (folder.path / "run.json").write_text(json.dumps({**record, "weather": "fine"}))
    assert folder.read_record().config["seed"] == 3


def test_a_config_that_is_gone_is_named(tmp_path):
    folder = RunFolder(tmp_path, "run")
    folder.write_record(build, Config())
    (folder.path / "config.json").unlink()
    with pytest.raises(ValueError, match=r"config\.json: missing, so the run cannot be read"):
        folder.read_record()


@pytest.mark.parametrize("failing", ["os.fsync", "os.replace"])
def test_an_error_while_writing_leaves_the_old_file(tmp_path, monkeypatch, failing):
    def fail(*arguments, **options):
        raise OSError(28, "No space left on device")

    folder = RunFolder(tmp_path, "run")
    folder.write_record(build, Config())
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(failing, fail)
        with pytest.raises(OSError, match="No space left"):
            folder.note_resume(20, {"seed": 4}, Config(4))
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
