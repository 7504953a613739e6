"""The shipped environments keep the contract of compiled environments, also where nothing is compiled."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import gymnasium as gym
import pytest

import parllel.envs.compiled  # noqa: F401 (registers its environments)
from parllel.testing.compiled_contract import CompiledEnvContract

PLACE = "parllel.envs.compiled."
SHIPPED = [spec.id for spec in gym.registry.values() if str(spec.entry_point).startswith(PLACE)]
# Larger rooms share the functions of the smallest ones; each size is compared with MiniGrid's.
IDS = [env_id for env_id in SHIPPED if not re.search(r"-(6x6|8x8|16x16)-", env_id)]


@pytest.mark.few(4)
class TestShipped(CompiledEnvContract):
    @pytest.fixture(autouse=True, params=IDS)
    def choose_env(self, request):
        self.env_id = request.param
        self.uses_rng = self.env_id != "parllel/Empty-5x5-v0"

    def make_env(self, **options):
        return gym.make(self.env_id, **options)


def test_cages_step_them_without_a_compiler():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    command += ["-m", "", "-k", "cage and (CartPole or Pendulum or DoorKey) and not compiler"]
    done = subprocess.run(
        command,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
