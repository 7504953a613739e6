"""Without a compiler, the shipped environments run as Python and return the same bits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest
from step_pairs import fingerprint

import parllel.envs.compiled  # noqa: F401 (registers its environments)

SUPPORT = Path(__file__).parents[2] / "support"
SEED, N_STEPS = 3, 120
SCRIPT = """
import sys
import gymnasium as gym
from numba import config
import parllel.envs.compiled
from test_as_python import shipped, some_action
from step_pairs import fingerprint

assert config.DISABLE_JIT
for env_id in shipped():
    env = gym.make(env_id)
    print(env_id, fingerprint(env, SEED, some_action(env), N_STEPS))
"""


def shipped():
    """Return the ids of compiled environments. Grid worlds of other sizes have the same functions."""
    place = "parllel.envs.compiled."
    ids = [spec.id for spec in gym.registry.values() if str(spec.entry_point).startswith(place)]
    return [env_id for env_id in ids if re.search(r"(5x5|Rooms|[a-z])-v\d$", env_id)]


def some_action(env):
    space = env.action_space
    if isinstance(space, gym.spaces.Box):
        return lambda _, rng: rng.uniform(space.low, space.high).astype(space.dtype)
    return lambda _, rng: int(rng.integers(space.n))


@pytest.fixture(scope="module")
def as_python():
    """What a process prints in which nothing is compiled."""
    script = SCRIPT.replace("N_STEPS", str(N_STEPS)).replace("SEED", str(SEED))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={
            **os.environ,
            "NUMBA_DISABLE_JIT": "1",
            "PYTHONPATH": os.pathsep.join([*sys.path, str(SUPPORT), str(Path(__file__).parent)]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


def test_all_kinds_of_environments_are_played(as_python):
    assert list(as_python) == shipped()
    assert len(as_python) == 10


@pytest.mark.parametrize("env_id", shipped())
def test_compiled_and_as_python_they_return_the_same_bits(env_id, as_python):
    env = gym.make(env_id)
    assert fingerprint(env, SEED, some_action(env), N_STEPS) == as_python[env_id]
