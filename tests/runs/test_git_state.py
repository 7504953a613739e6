from __future__ import annotations

import os
import subprocess
import sys

import pytest

from parllel.runs import RunFolder, run_record


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """Return a folder with a script `train.py`, committed."""
    folder = tmp_path / "project" / "deep"
    folder.mkdir(parents=True)
    git(folder.parent, "init", "--quiet", "--initial-branch", "work")
    (folder / "train.py").write_text("def build(config, stack, folder, console):\n    return 1\n")
    git(folder.parent, "add", ".")
    git(folder.parent, "commit", "--quiet", "--message", "first")
    return folder


def record_of(script, base):
    """Return the record of a run of another process, and its folder."""
    program = (
        f"import sys; sys.path.insert(0, {str(script.parent)!r})\n"
        "from train import build\n"
        "from parllel.runs import RunFolder\n"
        f"RunFolder({str(base)!r}, 'run').write_record(build, {{'seed': 0}})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    folder = RunFolder.open(base / "run")
    return folder.read_record(), folder.path


def test_the_commit_is_noted(repository, tmp_path):
    record, path = record_of(repository / "train.py", tmp_path / "runs")
    assert record.git == {
        "root": str(repository.parent),
        "commit": git(repository, "rev-parse", "HEAD"),
        "branch": "work",
        "dirty": False,
    }
    assert not (path / "git.diff").exists()
    assert record.build_function.name == "train:build"
    assert record.build_function.file == str(repository / "train.py")


def test_changes_of_the_source_are_kept(repository, tmp_path):
    script = repository / "train.py"
    changed = script.read_text().replace("1", "2")
    script.write_text(changed)
    record, path = record_of(script, tmp_path / "runs")
    assert record.git["dirty"] is True
    git(repository, "checkout", "--quiet", "train.py")
    git(repository.parent, "apply", str(path / "git.diff"))
    assert script.read_text() == changed


def test_what_the_user_likes_to_look_at_does_not_matter(repository, tmp_path):
    settings = {"color.ui": "always", "color.diff": "always"}
    settings |= {f"diff.{name}": "true" for name in ("relative", "noprefix", "mnemonicPrefix")}
    for name, value in settings.items():
        git(repository, "config", name, value)
    beside = repository.parent / "beside.py"
    beside.write_text("A = 1\n")
    git(repository.parent, "add", ".")
    git(repository.parent, "commit", "--quiet", "--message", "second")
    beside.write_text("A = 2\n")
    record, path = record_of(repository / "train.py", tmp_path / "runs")
    assert record.git["dirty"] is True
    git(repository.parent, "checkout", "--quiet", "beside.py")
    git(repository.parent, "apply", str(path / "git.diff"))
    assert beside.read_text() == "A = 2\n"


def test_a_resume_notes_the_source_that_it_goes_on_with(repository, tmp_path):
    _, path = record_of(repository / "train.py", tmp_path / "runs")
    (repository / "train.py").write_text(
        "def build(config, stack, folder, console):\n    return 2\n"
    )
    git(repository, "commit", "--quiet", "--all", "--message", "second")
    (repository / "train.py").write_text(
        "def build(config, stack, folder, console):\n    return 3\n"
    )
    RunFolder.open(path).note_resume(20, {}, {"seed": 0})
    record = RunFolder.open(path).read_record()
    (entry,) = record.history
    assert entry["git"]["commit"] == git(repository, "rev-parse", "HEAD") != record.git["commit"]
    assert (entry["git"]["dirty"], record.git["dirty"]) == (True, False)


def test_no_commit_no_branch_no_repository(repository, tmp_path):
    git(repository, "checkout", "--quiet", "--detach")
    record, _ = record_of(repository / "train.py", tmp_path / "a")
    assert (record.git["branch"], record.git["dirty"]) == (None, False)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "train.py").write_text((repository / "train.py").read_text())
    assert record_of(alone / "train.py", tmp_path / "b")[0].git is None
    git(alone, "init", "--quiet", "--initial-branch", "new")
    record, _ = record_of(alone / "train.py", tmp_path / "c")
    assert (record.git["commit"], record.git["branch"], record.git["dirty"]) == (None, "new", False)


def test_a_large_difference_is_left_out(repository, tmp_path):
    (repository / "train.py").write_text("def build(): pass\n" + "# long\n" * 200_000)
    record, path = record_of(repository / "train.py", tmp_path / "runs")
    assert record.git["dirty"] is True
    assert not (path / "git.diff").exists()


def test_no_git_is_no_error(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert record_of(repository / "train.py", tmp_path / "runs")[0].git is None


def test_what_a_hook_sets_speaks_of_another_repository(repository, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    record, _ = record_of(repository / "train.py", tmp_path / "runs")
    assert record.git["root"] == str(repository.parent)


def test_git_that_hangs_is_given_up(repository, tmp_path, monkeypatch):
    slow = tmp_path / "bin"
    slow.mkdir()
    (slow / "git").write_text("#!/bin/sh\nexec sleep 30\n")
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow}:{os.environ['PATH']}")
    monkeypatch.setattr(run_record, "GIT_TIMEOUT_S", 0.1)
    assert run_record.git_state(repository) == (None, b"")
