"""The example on CartPole, with one line changed to a native vector environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parllel.policies import load_policy, play_episodes

SCRIPT = Path(__file__).parents[2] / "examples" / "cartpole" / "train_ppo.py"
LINE = '    make_env = partial(gym.make, "CartPole-v1", render_mode="rgb_array")\n'
NATIVE = (
    "    make_env = VectorEnvFactory("
    'partial(gym.make_vec, "CartPole-v1", vectorization_mode="vector_entry_point"))\n'
)
IMPORT = "from parllel import BatchSpec, Seeds\n"


@pytest.mark.timeout(600)
def test_cartpole_is_solved_on_a_native_vector_environment(tmp_path):
    source = SCRIPT.read_text()
    assert source.count(LINE) == source.count(IMPORT) == 1
    source = source.replace(IMPORT, f"{IMPORT}from parllel.cages import VectorEnvFactory\n")
    script = tmp_path / "train_ppo.py"
    script.write_text(source.replace(LINE, NATIVE))
    command = [sys.executable, str(script), "--runs", "runs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Solved after" in done.stdout
    # What plays a run asks for its environments one by one.
    (folder,) = (tmp_path / "runs").iterdir()
    policy = load_policy(folder)
    episodes = play_episodes(policy, policy.make_env, range(4))
    assert np.mean([one.traj.return_ for one in episodes]) > 400
