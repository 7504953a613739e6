"""Each extra alone, in an environment of its own, lets its commands run; the others say what they need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("run_of_an_extra.py")
GAME = Path(__file__).with_name("game_of_an_extra.py")
# What the code of each extra imports: an extra may bring along what another one asks for.
LIBRARIES = {
    "torch": "torch",
    "jax": "optax",
    "export": "onnxruntime",
    "plot": "matplotlib",
    "tensorboard": "tensorboard",
    "video": "imageio_ffmpeg",
    "multiagent": "mpe2",
    "cli": "tyro",
    "sweeps": "optuna",
    "wire": "msgspec",
    "rollouts": "ray",
    "remote": "h11",
    "operators": "chess",
    "kafka": "confluent_kafka",
}
PARLLEL = ("-m", "parllel")
# For each command: the extra that it needs, and what Python is called with in a folder of runs.
COMMANDS = {
    "help": (None, [*PARLLEL, "--help"]),
    "list": (None, [*PARLLEL, "runs", "--json", "runs"]),
    "resume": (None, [*PARLLEL, "resume", "runs/core", "n_steps=80"]),
    "repeat": (None, [*PARLLEL, "repeat", "runs/core"]),
    "play": (None, [*PARLLEL, "play", "runs/core", "--seeds", "0-2"]),
    "sweep": (None, [*PARLLEL, "sweep", SCRIPT.name, "seed=0-1", "--into", "sweep"]),
    "study": (
        "sweeps",
        [
            *PARLLEL,
            "sweep",
            SCRIPT.name,
            "n_steps=int:40..80",
            "--optuna",
            "--trials=2",
            "--into=study",
        ],
    ),
    "plot": ("plot", [*PARLLEL, "plot", "runs/core"]),
    "show": ("video", [*PARLLEL, "show", "runs/core", "--video", "core.gif"]),
    "tensorboard": ("tensorboard", [*PARLLEL, "repeat", "runs/tensorboard"]),
    "torch": ("torch", [*PARLLEL, "repeat", "runs/torch"]),
    "jax": ("jax", [*PARLLEL, "repeat", "runs/jax"]),
    "export": ("export", [*PARLLEL, "export", "runs/export", "--to", "policy.onnx"]),
    "multiagent": ("multiagent", [*PARLLEL, "repeat", "runs/multiagent"]),
    "flags": ("cli", [SCRIPT.name, "--part", "core"]),
    "wire": ("wire", ["-c", "import parllel.distributed.wire"]),
    "rollouts": ("rollouts", ["-c", "import parllel.distributed.rollouts.on_ray"]),
    "remote": (
        "remote",
        [*PARLLEL, "remote", "run", "--environment", "rps", "--agents", "rock", "paper"],
    ),
    "operators": ("operators", [GAME.name]),
    "kafka": ("kafka", ["-c", "import parllel.distributed.messaging.kafka"]),
}
# Their code imports the library itself: the sentence names that, and for `python -c` it ends a traceback.
# A game, the broker and an export name the first that is missing, of those that other extras have too.
OWN_CODE = {"multiagent": "mpe2", "operators": "needs", "kafka": "needs", "export": "needs"}
WITH_TRACEBACK = ("flags", "wire", "rollouts", "operators", "kafka")


def call(python: Path | str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(python), *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is built for others, so that nothing of this folder is found by accident."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in ("parllel", "patterns"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    done = call(sys.executable, "-m", "build", "--wheel", "--outdir", folder, source, cwd=folder)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script and its runs, one for each part."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(SCRIPT, folder)
    shutil.copy(GAME, folder)
    for part in ("core", "torch", "jax", "export", "tensorboard", "multiagent"):
        done = call(sys.executable, SCRIPT.name, "--part", part, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("extra", ["", *LIBRARIES], ids=lambda extra: extra or "none")
def test_an_extra_alone(tmp_path: Path, wheel: Path, project: Path, extra: str) -> None:
    environment = tmp_path / "venv"
    done = call(sys.executable, "-m", "venv", environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    python = environment / "bin" / "python"
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    install = ("-m", "pip", "install", "--quiet", "--no-compile", "--constraint")
    done = call(python, *install, ROOT / "constraints.txt", wanted, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    try:
        present = {
            name
            for name, library in LIBRARIES.items()
            if call(python, "-c", f"import {library}", cwd=project).returncode == 0
        }
        assert {extra} - {""} <= present
        problems = [
            problem
            for name, (needed, arguments) in COMMANDS.items()
            if (problem := problem_of(name, needed, present, call(python, *arguments, cwd=project)))
        ]
        assert not problems, "\n".join(problems)
    finally:
        shutil.rmtree(environment)  # torch alone takes a gigabyte


def problem_of(
    name: str, needed: str | None, present: set[str], done: subprocess.CompletedProcess[str]
) -> str | None:
    """Return what is wrong with what a command did, or None."""
    said = done.stderr.strip().splitlines()
    if needed is None or needed in present:
        right = done.returncode == 0 and not said
    else:
        last = said[-1] if said else ""
        right = done.returncode != 0 and OWN_CODE.get(name, f"pip install '.[{needed}]'") in last
        if name not in WITH_TRACEBACK:
            right &= done.returncode == 2 and len(said) == 1
    return None if right else f"{name}: status {done.returncode}, {done.stderr or done.stdout}"
