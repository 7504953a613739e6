"""Scripts of other libraries on our vector environments, with budgets that are over at once."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "benchmarks" / "peers" / ".venvs" / "peers"


def test_ppo_in_one_file_prints_the_same_on_a_sync_vector_env(example, tmp_path):
    arguments = ("--n-steps", "4096", "--seed", "3")
    script = "vector/ppo_in_one_file.py"
    ours = example(script, *arguments, folder=tmp_path)
    assert len(re.findall(r"mean return \d+\.\d+, loss -?\d", ours)) == 2
    assert ours == example(script, *arguments, "--sync", folder=tmp_path)


@pytest.mark.parametrize("arguments", [("ppo", "--n-steps", "256"), ("sac", "--n-steps", "120")])
def test_stable_baselines_learns_the_same_on_a_dummy_vec_env(example, tmp_path, arguments):
    pytest.importorskip("stable_baselines3")
    arguments = (*arguments, "--evaluate", "1")
    ours = example("vector/stable_baselines.py", *arguments, folder=tmp_path)
    assert "over 1 episodes" in ours
    assert ours == example("vector/stable_baselines.py", *arguments, "--dummy", folder=tmp_path)


@pytest.mark.parametrize("library", ["torchrl", pytest.param("tianshou", marks=pytest.mark.soak)])
def test_other_libraries_collect_the_same_steps(library):
    if not (PEERS / "installed.json").exists():
        pytest.skip("needs `python benchmarks/peers/venvs.py peers`")
    script = ROOT / "examples" / "vector" / "other_libraries.py"
    done = subprocess.run(
        [PEERS / "bin" / "python", script, library],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("equal\n")
