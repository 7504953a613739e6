from __future__ import annotations

import json
import platform
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from parllel.runners import RunFolder, versions
from parllel.seeding import Seeds


@dataclass(frozen=True)
class Config:
    seed: int = 3
    sizes: tuple[int, ...] = (64, 64)
    nested: dict = field(default_factory=lambda: {"rate": 1e-3})
    path: Path = Path("somewhere")


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
    seeds = Seeds(12)
    seeds.integer("model")
    folder.write_start(Config(), seeds)
    files = {path.name: json.loads(path.read_text()) for path in folder.path.iterdir()}
    assert set(files) == {"config.json", "seeds.json", "versions.json"}
    assert files["config.json"] == {
        "seed": 3,
        "sizes": [64, 64],
        "nested": {"rate": 0.001},
        "path": repr(Path("somewhere")),
    }
    assert files["seeds.json"] == {"entropy": 12, "given": {"model": Seeds(12).integer("model")}}
    assert files["versions.json"] == versions()


def test_a_config_may_be_a_dict(tmp_path):
    folder = RunFolder(tmp_path, "run")
    folder.write_start({"T": 4}, Seeds(0))
    assert json.loads((folder.path / "config.json").read_text()) == {"T": 4}


def test_versions_are_those_of_this_interpreter():
    found = versions()
    assert found["python"] == platform.python_version()
    assert found["numpy"] == np.__version__
    assert "pytest" in found["command"]


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
