"""The example on CartPole, with one line changed to a native vector environment."""

from __future__ import annotations

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


def trained(scripts, folder, *arguments):
    """Train as the example does, but for that line, and return what it printed and the folder of the run."""
    source = SCRIPT.read_text()
    assert source.count(LINE) == source.count(IMPORT) == 1
    source = source.replace(IMPORT, f"{IMPORT}from parllel.cages import VectorEnvFactory\n")
    script = folder / "train_ppo.py"
    script.write_text(source.replace(LINE, NATIVE))
    done = scripts.run(script, "--runs", "runs", *arguments, cwd=folder)
    assert done.stderr == ""
    (run,) = (folder / "runs").iterdir()
    return done.stdout, run


def mean_return(run, n_episodes=4):
    # What plays a run asks for its environments one by one.
    with load_policy(run) as policy:
        episodes = play_episodes(policy, policy.make_env, range(n_episodes))
        return np.mean([one.traj.return_ for one in episodes])


def test_cartpole_trains_on_a_native_vector_environment(scripts, tmp_path):
    said, run = trained(scripts, tmp_path, "--n-steps", "2048", "--T", "64")
    assert "Finished after 2,048 environment steps" in said
    assert mean_return(run) > 5


@pytest.mark.soak
def test_cartpole_is_solved_on_a_native_vector_environment(scripts, tmp_path):
    said, run = trained(scripts, tmp_path)
    assert "Solved after" in said
    assert mean_return(run) > 400
