from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import torch

from parllel.cages import ProcessCage
from parllel.testing import CountingEnv
from parllel.torch import PPO

print("imported torch in", __name__)


class AskedEnv(gym.Wrapper):
    def modules(self):
        return sorted(name for name in sys.modules if "." not in name)

    def script(self):
        return __name__


def make_env():
    return AskedEnv(CountingEnv())


if __name__ == "__main__":
    cages = [ProcessCage(make_env, start_method=sys.argv[1]) for _ in range(2)]
    for cage in cages:
        cage.reset_async()
        cage.await_step()
        cage.step_async(np.int64(1))
        cage.await_step()
        modules = cage.env_method("modules")
        assert "gymnasium" in modules
        assert "torch" in sys.modules
        print("torch" in modules, "numba" in modules, cage.env_method("script"))
        cage.close()
"""


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
@pytest.mark.few(1)
def test_a_script_that_imports_torch_has_workers_without(tmp_path, start_method):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), start_method],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    # The script ran once, in the parent; its class arrived by value all the same.
    assert done.stdout.splitlines() == [
        "imported torch in __main__",
        "False False __main__",
        "False False __main__",
    ]
