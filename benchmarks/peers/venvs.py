"""Virtual environments of the sides: one for all whose pins agree, one for each that clashes.

    python benchmarks/peers/venvs.py [NAME ...]

They lie in benchmarks/peers/.venvs and hold the versions of numpy, gymnasium, mujoco, ale-py, numba and torch
that the running Python has, so that all sides step the same code. What a side needs in another Python has as
much of that as there is for it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

FOLDER = Path(__file__).with_name(".venvs")
SHARED = ("numpy", "gymnasium", "mujoco", "ale-py", "numba", "torch", "cloudpickle", "ray")
ENVIRONMENTS = ("numpy", "gymnasium[mujoco]", "mujoco<4", "ale-py", "minigrid", "cloudpickle")
INSTALL_S = 1800


@dataclass(frozen=True)
class Step:
    """One call of pip.

    Attributes:
        packages: what to install.
        options: of `pip install`.
        variables: further environment variables.
        start_up: source that each Python of this step runs when it starts, for a build that needs help.
    """

    packages: tuple[str, ...]
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    start_up: str = ""


@dataclass(frozen=True)
class Recipe:
    """What a virtual environment holds.

    Attributes:
        steps: calls of pip, in their order.
        python: its version, such as "3.10"; None for that of this interpreter.
        shared: libraries that have the versions they have here.
    """

    steps: tuple[Step, ...]
    python: str | None = None
    shared: tuple[str, ...] = SHARED


RECIPES = {
    "peers": Recipe(
        (
            Step(
                (
                    *ENVIRONMENTS,
                    *("numba", "rich", "torch"),
                    *("stable-baselines3==2.9.2", "tianshou==2.0.1"),
                )
            ),
            Step(("torchrl==0.14.1", "envpool==1.2.5")),
        )
    ),
    # ray[rllib] pins a gymnasium of its own. It works with the one that all sides have, so what else it needs
    # is named here.
    "rollouts": Recipe(
        (
            Step((*ENVIRONMENTS, "numba", "rich", "torch", "ray")),
            Step(
                (
                    *("pandas", "tensorboardX>=1.9", "requests", "pyarrow>=17", "fsspec", "scipy"),
                    *("pydantic>=2.5,<3", "dm_tree", "lz4", "ormsgpack>=1.7", "pyyaml"),
                    "torchrl==0.14.1",
                )
            ),
        )
    ),
    # The replays of other libraries run beside ours, in one process.
    "replays": Recipe(
        (
            Step((*ENVIRONMENTS, "numba", "rich", "torch", "pytest", "stable-baselines3==2.9.2")),
            Step(("torchrl==0.14.1",)),
            Step(("cpprb==11.0.0",)),
        )
    ),
    # Its pins are for environments that nothing here plays, and are large. What the others need is named.
    "kaggle": Recipe(
        (
            Step(("kaggle-environments==1.33.2",), ("--no-deps",)),
            Step(("flask", "requests", "jsonschema", "numpy", "pyyaml", "pydantic")),
        )
    ),
    # Its pins (numpy<2, gymnasium<=0.29.1) exclude the environments that are measured (HalfCheetah-v5), so
    # it is installed without them. Its environments in C, which need downloads, and its trainer are
    # left out by its own switches; with the first one, its setup.py uses a name that it has not set.
    "pufferlib": Recipe(
        (
            Step(
                (
                    *ENVIRONMENTS,
                    "pettingzoo",
                    "psutil",
                    "gym<=0.23",
                    "torch",
                    "cython",
                    "setuptools",
                )
            ),
            Step(
                ("pufferlib==3.0.0",),
                ("--no-deps", "--no-build-isolation"),
                {"NO_OCEAN": "1", "NO_TRAIN": "1"},
                "import builtins; builtins.c_extension_paths = []\n",
            ),
        )
    ),
}
# What is not measured, and why.
NOT_MEASURED = {
    "Sample Factory": "2.1.1 installs, but its pins (gymnasium<1.0, numpy<2) exclude the environments "
    "that are measured, and its rollout workers take actions from its own policy workers only",
}


class MissingPythonError(RuntimeError):
    """A side needs a version of Python that is not there; the message names no place."""


def python_of(venv: str) -> Path | None:
    """Return the interpreter of a finished virtual environment, or None."""
    python = FOLDER / venv / "bin" / "python"
    return python if (FOLDER / venv / "installed.json").exists() and python.exists() else None


def create(venv: str) -> None:
    """Make a virtual environment and install into it; do nothing if it is finished.

    Raises:
        MissingPythonError: if there is no Python of the version that it needs.
        RuntimeError: if pip fails, with the last of what it said.
    """
    if python_of(venv) is not None:
        return
    folder = FOLDER / venv
    folder.mkdir(parents=True, exist_ok=True)
    # Tests in several processes ask for the same one. The folder itself is the lock, as --clear empties it.
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if python_of(venv) is None:
            _create(folder, venv)
    finally:
        os.close(lock)


def _create(folder: Path, venv: str) -> None:
    recipe = RECIPES[venv]
    base = find_python(recipe.python)
    subprocess.run([base, "-m", "venv", "--without-pip", "--clear", str(folder)], check=True)
    pins = shared_pins(recipe)
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch) / "constraints.txt"
        constraints.write_text("".join(f"{pin}\n" for pin in pins))
        for step in recipe.steps:
            _install(folder / "bin" / "python", step, constraints)
    # Written last: a run that was broken off leaves no environment that looks finished.
    (folder / "installed.json").write_text(json.dumps({"pins": pins}) + "\n")


def find_python(version: str | None) -> str:
    """Return an interpreter of a version, from the path or from pyenv's.

    Raises:
        MissingPythonError: if there is none.
    """
    if version is None:
        return sys.executable
    on_path = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found = sorted(pyenv.glob(f"{version}.*/bin/python"))
    for candidate in [*([on_path] if on_path else []), *map(str, found)]:
        # One on the path may be a shim for a version that is not chosen.
        says = subprocess.run([candidate, "--version"], capture_output=True, text=True)
        if says.returncode == 0 and says.stdout.startswith(f"Python {version}."):
            return candidate
    raise MissingPythonError(f"needs Python {version}, which is not there")


def shared_pins(recipe: Recipe) -> list[str]:
    """Return the versions that sides are to have, as those that run here."""
    pins = []
    for library in recipe.shared:
        try:
            version = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
        # There may be no such build, as "+cpu", for another Python.
        pins.append(f"{library}=={version.partition('+')[0] if recipe.python else version}")
    return pins


def _install(python: Path, step: Step, constraints: Path) -> None:
    variables = {**os.environ, **step.variables}
    if step.start_up:
        (constraints.parent / "sitecustomize.py").write_text(step.start_up)
        variables["PYTHONPATH"] = str(constraints.parent)
    # By the pip that runs here: the one that Python brings is slower. Files are compiled when they are first
    # imported: most never are.
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    command += ["--no-compile", *step.options, "--constraint", str(constraints), *step.packages]
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=INSTALL_S, check=False
    )
    if done.returncode:
        said = " ".join(done.stderr.split()[-60:])
        raise RuntimeError(f"pip install {' '.join(step.packages)} failed: {said}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environments that are named, all without a name; say what could not be made."""
    parser = argparse.ArgumentParser(description="Make the virtual environments of the sides.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECIPES))
    names = parser.parse_args(arguments).names or list(RECIPES)
    unknown = set(names) - set(RECIPES)
    if unknown:
        parser.error(f"NAME: expected some of {', '.join(RECIPES)}, got {', '.join(unknown)}")
    failed = 0
    for name in names:
        try:
            create(name)
            print(f"{name}: ready", flush=True)
        except (RuntimeError, subprocess.SubprocessError, OSError) as error:
            failed += 1
            print(f"{name}: not made: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
