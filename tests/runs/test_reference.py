from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections import OrderedDict

import pytest

from parllel.runs.reference import Reference, reference_to

SCRIPT = """
from __future__ import annotations

from dataclasses import dataclass

import beside


@dataclass(frozen=True)
class Config:
    seed: int = 3


class Maker:
    class Inner:
        pass


def build(config):
    return beside.NAME, config.seed


if __name__ == "__main__":
    raise SystemExit("only a module")
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Return a script that imports what stands beside it; leave no trace of its import."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    folder = tmp_path / "some folder"
    folder.mkdir()
    (folder / "beside.py").write_text("NAME = 'beside'\n")
    path = folder / "train-it.py"
    path.write_text(SCRIPT)
    yield path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_functions_and_classes_of_modules():
    reference = reference_to(functools.partial)
    assert reference.name == "functools:partial"
    assert reference.find() is functools.partial
    assert (
        reference_to(OrderedDict.fromkeys).problem is not None
    )  # bound: no function of its module
    found = reference_to(test_functions_and_classes_of_modules)
    name = "test_functions_and_classes_of_modules"
    assert (found.name, found.file, found.problem) == (f"{__name__}:{name}", __file__, None)


def test_what_cannot_be_found_again_says_why():
    def inner():
        pass

    assert reference_to(inner).problem == "it stands inside of a function"
    assert reference_to(lambda: 0).problem == "it is a lambda"
    found = reference_to(functools.partial(print))
    assert found.problem == "it is a partial, and no function or class of a module"
    with pytest.raises(ValueError, match=r"cannot be found again: it is a partial"):
        found.find()


def test_a_name_that_means_something_else(monkeypatch):
    monkeypatch.setitem(globals(), "SCRIPT_MAKER", None)

    def make():
        pass

    make.__qualname__ = "SCRIPT_MAKER"
    assert reference_to(make).problem == "something else has its name in its module"
    make.__module__ = "gone_away"
    assert reference_to(make).problem == "its module is not imported"


def test_a_script_is_imported_by_its_file(script):
    build = Reference("__main__:build", str(script)).find()
    config_class = Reference("__main__:Config", str(script)).find()
    assert build(config_class()) == ("beside", 3)
    assert sys.modules[build.__module__].Config is config_class  # one module for both
    assert build.__module__.isidentifier()
    # What is noted of it is what was noted of the script itself.
    assert reference_to(build) == Reference("__main__:build", str(script))
    assert Reference("__main__:Maker.Inner", str(script)).find().__name__ == "Inner"


def test_scripts_of_one_name_are_two_modules(script, tmp_path):
    other = tmp_path / "train-it.py"
    other.write_text("def build(config):\n    return 'other'\n")
    first, second = (Reference("__main__:build", str(path)).find() for path in (script, other))
    assert first.__module__ != second.__module__
    assert (first.__code__.co_filename, second(None)) == (str(script), "other")


def test_a_module_of_the_same_name_elsewhere_is_not_taken(tmp_path, monkeypatch):
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train_me.py").write_text(f"def build(): return {name!r}\n")
    sys.path.insert(0, str(tmp_path / "a"))
    try:
        from_b = Reference("train_me:build", str(tmp_path / "b" / "train_me.py"))
        assert from_b.find()() == "b"
        from_a = Reference("train_me:build", str(tmp_path / "a" / "train_me.py"))
        assert from_a.find()() == "a"
        assert sys.modules["train_me"].__file__ == from_a.file
        assert from_b.find()() == "b"
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]


@pytest.mark.parametrize("name", ["train_once", "project_once.parts.train", "project_once"])
def test_what_was_imported_is_imported_once_and_by_its_name(tmp_path, monkeypatch, name):
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path.joinpath(*name.split("."))
    path = path / "__init__.py" if name == "project_once" else path.with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("class Config:\n    pass\n\ndef build():\n    return Config\n")
    try:
        # Nothing says where it is but its file: the working directory is another one today.
        config_class = Reference(f"{name}:Config", str(path)).find()
        build = Reference(f"{name}:build", str(path)).find()
        assert build() is config_class
        assert build.__module__ == name
    finally:
        for added in set(sys.modules) - before:
            del sys.modules[added]


ENV = """
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

import beside


@dataclass(frozen=True)
class Config:
    n_actions: int = len(beside.NAME)


class Env(gym.Env):
    def __init__(self, config):
        self.action_space = gym.spaces.Discrete(config.n_actions)
        self.observation_space = gym.spaces.Box(0, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


def make_env(config):
    return Env(config)
"""
WORKERS = """
import sys
from functools import partial
from parllel.cages import ProcessCage
from parllel.runs.reference import Reference

make_env, Config = (
    Reference(f"{sys.argv[2]}:{name}", sys.argv[1]).find() for name in ("make_env", "Config")
)
for start_method in ("fork", "forkserver", "spawn"):
    with ProcessCage(partial(make_env, Config()), start_method=start_method) as cage:
        print(cage.spaces.action.n)
"""


@pytest.mark.parametrize("name", ["__main__", "train"])
def test_what_stands_in_a_script_or_module_reaches_workers(script, tmp_path, name):
    if name == "train":
        script = script.with_name("train.py")
    script.write_text(ENV)
    # In a process of its own: where the workers come from is one place for all tests.
    done = subprocess.run(
        [sys.executable, "-c", WORKERS, str(script), name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["6", "6", "6"], done.stderr


def test_what_is_not_there_any_more_is_named(script):
    with pytest.raises(ValueError, match=r"train-it\.py: there is no 'bild' any more"):
        Reference("__main__:bild", str(script)).find()
    script.unlink()
    with pytest.raises(
        FileNotFoundError,
        match=r"train-it\.py: the script or module that built this run no longer exists",
    ):
        Reference("train_it:build", str(script)).find()
    with pytest.raises(
        FileNotFoundError,
        match="__main__: the script or module that built this run no longer exists",
    ):
        Reference("__main__:build").find()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def build(:", r"train-it\.py: cannot be imported: SyntaxError"),
        (
            "import no_such_module_at_all",
            r"cannot be imported: ModuleNotFoundError: No module named",
        ),
        (
            "raise SystemExit(3)",
            r"cannot be imported, because it exits \(status 3\); .* below `if",
        ),
    ],
)
def test_a_script_that_cannot_be_imported(script, source, message):
    script.write_text(source)
    for _ in range(2):  # nothing half imported is left behind
        with pytest.raises(ValueError, match=message):
            Reference("__main__:build", str(script)).find()


def test_a_package_that_cannot_be_imported(tmp_path, monkeypatch):
    package = tmp_path / "broken_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('on purpose')\n")
    (package / "train.py").write_text("def build(): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = Reference("broken_package.train:build", str(package / "train.py"))
    message = r"^broken_package\.train: cannot be imported: RuntimeError: on purpose"
    with pytest.raises(ValueError, match=message):
        found.find()


RUN = """
import sys
from parllel.runs.reference import reference_to

def build():
    pass

if __name__ == "__main__":
    found = reference_to(build)
    print(found.name, found.file, found.problem, found.find() is build, sep="|")
"""


def test_a_script_finds_itself(tmp_path):
    path = tmp_path / "itself.py"
    path.write_text(RUN)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def output_of(*command, **options):
        done = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            **options,
        )
        return done.stdout.strip()

    assert output_of(str(path)) == f"__main__:build|{path}|None|True"
    assert output_of("-m", "itself") == f"itself:build|{path}|None|True"
    entered = RUN.split("    print")[0] + "    print(found.problem)"
    assert output_of("-c", entered) == "it was entered by hand, and stands in no file"
