"""Folders and archives with a main.py as agents, and archives that mean harm."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from agent_setup import context

from parllel.cli import main
from parllel.distributed.remote import Agent, agent_archive

GOOD = {"step": 1, "remainingOverageTime": 60}
FILES = {
    "main.py": "import helper\nfrom pathlib import Path\n\n"
    "def agent(observation, configuration):\n"
    "    here = Path(configuration['__raw_path__']).parent\n"
    "    return [helper.VALUE, (here / 'data' / 'weights.txt').read_text()]\n",
    "helper.py": "VALUE = 7\n",
    "data/weights.txt": "some weights",
}
ANSWER = [7, "some weights"]


def as_folder(path):
    for name, text in FILES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def as_zip(path, files=FILES):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def as_tar(path, files=FILES, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


MADE = {
    "folder": lambda path: as_folder(path / "agent"),
    "zip": lambda path: as_zip(path / "submission.zip"),
    "tar.gz": lambda path: as_tar(path / "submission.tar.gz"),
    "tgz": lambda path: as_tar(path / "submission.tgz"),
    "tar": lambda path: as_tar(path / "submission.tar", mode="w"),
}


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_its_main_acts_and_finds_its_files(tmp_path, temporary, make):
    with Agent(str(make(tmp_path)), context()) as agent:
        assert agent.act(GOOD)[0] == ANSWER
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_commands_take_it(tmp_path, temporary, make, capsys):
    path = make(tmp_path)
    constant = FILES["main.py"].replace("return [", "return 2\n    return [")
    if path.is_dir():
        (path / "main.py").write_text(constant)
    else:
        (as_zip if path.suffix == ".zip" else as_tar)(path, {**FILES, "main.py": constant})
    settings = {"episodeSteps": 3, "tieRewardThreshold": 1}
    flags = ["--environment", "rps", "--agents", str(path), "rock", "--episodes", "2"]
    assert main(["remote", "evaluate", *flags, "--configuration", json.dumps(settings)]) == 0
    # Scissors lose against rock.
    assert capsys.readouterr().out.strip() == "[[-2,2],[-2,2]]"
    assert list(temporary.iterdir()) == []


def linked(path):
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("main.py")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)


def linked_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("main.py")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")


def device(path):
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("main.py")
        info.type = tarfile.CHRTYPE
        archive.addfile(info)


def large_header(path):
    record = b"a" * (8 << 20)
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, len(record)
    with gzip.open(path, "wb") as file:
        file.write(info.tobuf() + record)


def twice(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("main.py", "agent = lambda: 1")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("main.py", "agent = lambda: 2")


BAD = {
    "parent.zip": (
        lambda path: as_zip(path, {"../main.py": ""}),
        "path that leads out of the archive",
    ),
    "root.tar": (lambda path: as_tar(path, {"/main.py": ""}), "path that leads out of the archive"),
    "deep.tgz": (lambda path: as_tar(path, {"a/../../main.py": ""}), "path that leads out"),
    "windows.zip": (
        lambda path: as_zip(path, {"C:/main.py": ""}),
        "path that leads out of the archive",
    ),
    "link.tar.gz": (linked, "expected regular files, got 'main.py'"),
    "link.zip": (linked_zip, "expected regular files, got 'main.py'"),
    "device.tar": (device, "expected regular files, got 'main.py'"),
    "header.tar.gz": (large_header, "header of more than"),
    "twice.zip": (twice, "contains 'main.py' twice"),
    "many.zip": (lambda path: as_zip(path, {f"{i}.py": "" for i in range(30)}), "at most 20 files"),
    "bomb.zip": (lambda path: as_zip(path, {"main.py": "#" * 200_000}), "at most 100,000 bytes"),
    "bomb.tar.gz": (lambda path: as_tar(path, {"main.py": "#" * 200_000}), "at most 100,000"),
    "empty.zip": (lambda path: as_zip(path, {}), "expected main.py at the top level, got nothing"),
    "inside.tgz": (
        lambda path: as_tar(path, {"a/main.py": ""}),
        "expected main.py at the top level, got a",
    ),
    "damaged.zip": (lambda path: path.write_bytes(b"junk"), "damaged.zip: "),
    "damaged.tar.gz": (lambda path: path.write_bytes(b"\x1f\x8bjunk"), "damaged.tar.gz: "),
    "cut.tar.gz": (
        lambda path: path.write_bytes(
            as_tar(path, {"main.py": os.urandom(999).hex()}).read_bytes()[:300]
        ),
        "cut.tar.gz: ",
    ),
    "cut.zip": (lambda path: path.write_bytes(as_zip(path).read_bytes()[:60]), "cut.zip: "),
}


@pytest.mark.parametrize("name", BAD)
def test_archives_that_mean_harm_are_refused(tmp_path, temporary, monkeypatch, name):
    monkeypatch.setattr(agent_archive, "MAX_FILES", 20)
    monkeypatch.setattr(agent_archive, "MAX_BYTES", 100_000)
    make, message = BAD[name]
    make(tmp_path / name)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=message):
        Agent(str(tmp_path / name), context())
    # Nothing is left, and nothing was written elsewhere.
    assert list(temporary.iterdir()) == []
    assert sorted(tmp_path.iterdir()) == before


def test_a_main_that_fails_leaves_nothing(tmp_path, temporary):
    with pytest.raises(ValueError, match=r"bad\.zip.*ZeroDivisionError"):
        Agent(str(as_zip(tmp_path / "bad.zip", {"main.py": "1 / 0"})), context())
    assert list(temporary.iterdir()) == []


def test_programs_in_it_can_be_executed(tmp_path):
    files = {
        "main.py": "import subprocess, pathlib\nhere = pathlib.Path(__file__).parent\n"
        "def agent():\n    return subprocess.check_output([here / 'tool'], text=True)\n",
        "tool": "#!/bin/sh\nprintf used\n",
    }
    path = tmp_path / "submission.tar"
    with tarfile.open(path, "w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o755 if name == "tool" else 0o644
            archive.addfile(info, io.BytesIO(text.encode()))
    with Agent(Path(path), context()) as agent:
        assert agent.act(GOOD)[0] == "used"
