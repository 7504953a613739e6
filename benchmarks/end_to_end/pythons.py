"""An interpreter for each side: ours, or one of a virtual environment that is made when first needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENVS = Path(__file__).resolve().parent / ".venvs"
INSTALL_S = 1200.0


class NotInstalledError(Exception):
    """A side cannot be run here; the message says why, without naming places."""


@dataclass(frozen=True)
class Requirements:
    """What a virtual environment holds.

    Attributes:
        name: of its folder.
        version: of Python, such as "3.10"; None for that of this interpreter.
        steps: arguments of `pip install`, one call each.
    """

    name: str
    version: str | None
    steps: tuple[tuple[str, ...], ...]


def _constrained(*packages: str) -> tuple[str, ...]:
    return ("--constraint", str(ROOT / "constraints.txt"), *packages)


def stable_baselines3() -> Requirements:
    """Return the release that pip chooses, with the gymnasium and torch that ours has."""
    gymnasium = f"gymnasium=={metadata.version('gymnasium')}"
    return Requirements("sb3", None, (_constrained("torch", gymnasium, "stable-baselines3"),))


def cleanrl() -> Requirements:
    """Return the last release; it pins much that its PPO does not import, so not what it pins."""
    return Requirements(
        "cleanrl",
        "3.10",
        (
            ("setuptools<66", "wheel<0.40"),  # newer ones refuse the metadata of this gym
            ("--no-build-isolation", "--no-deps", "gym==0.23.1"),
            _constrained("torch", "numpy<2", "gym-notices", "cloudpickle", "tensorboard"),
            ("pygame<2.6",),
            ("--no-deps", "cleanrl==1.2.0"),
        ),
    )


def python_of(requirements: Requirements | None) -> str:
    """Return the interpreter to use, having installed what is missing; None means this one.

    Raises:
        NotInstalledError: if there is no such Python, or pip fails.
    """
    if requirements is None:
        return sys.executable
    folder = VENVS / requirements.name
    python, done = folder / "bin" / "python", folder / "installed.json"
    wanted = json.dumps([requirements.version, *requirements.steps])
    if done.exists() and done.read_text() == wanted:
        return str(python)
    base = find_python(requirements.version)
    print(f"making a virtual environment for {requirements.name}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _call(requirements.name, [base, "-m", "venv", str(folder)])
    for step in requirements.steps:
        _call(requirements.name, [str(python), "-m", "pip", "install", "--quiet", *step])
    done.write_text(wanted)
    return str(python)


def find_python(version: str | None) -> str:
    """Return an interpreter of a version, from the path or from pyenv's.

    Raises:
        NotInstalledError: if there is none.
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
    raise NotInstalledError(f"needs Python {version}, which is not there")


def _call(name: str, command: Sequence[str]) -> None:
    try:
        # Its messages are for the terminal, not for the results: they name places.
        ran = subprocess.run(command, stdout=sys.stderr, timeout=INSTALL_S)
    except subprocess.TimeoutExpired as error:
        raise NotInstalledError(f"{name}: installing took over {INSTALL_S:g} s") from error
    if ran.returncode:
        raise NotInstalledError(f"{name}: installing it failed, see the messages of pip")
