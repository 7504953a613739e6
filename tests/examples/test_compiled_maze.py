"""The maze of an example keeps the contract of compiled environments, and needs a memory."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from parllel.testing.compiled_contract import CompiledEnvContract

PATH = Path(__file__).parents[2] / "examples" / "compiled_memory" / "train_ppo.py"
FORWARD, UP, DOWN = range(3)


@pytest.fixture(scope="module")
def maze():
    spec = importlib.util.spec_from_file_location("compiled_memory_train_ppo", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module.CueMaze
    del sys.modules[spec.name]


class TestCueMaze(CompiledEnvContract):
    @pytest.fixture(autouse=True)
    def choose_env(self, maze):
        self.maze = maze

    def make_env(self, **options):
        return self.maze(length=4, **options)


def test_the_start_alone_shows_where_to_turn(maze):
    env, seen, cues = maze(length=3), {}, set()
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        cues.add(env.cue)
        assert observation.tolist() == [env.cue, 0]
        assert env.step(UP)[0].tolist() == observation.tolist()
        for place in range(3):
            observation, reward, terminated, *_ = env.step(FORWARD)
            np.testing.assert_array_equal(observation, seen.setdefault(place, observation))
            assert (reward, terminated) == (-0.01, False)
        turn = UP if seed % 2 else DOWN
        right = (turn == UP) == (env.cue == 1)
        assert env.step(turn)[1:3] == (1.0 if right else -1.0, True)
    assert cues == {1, -1}
