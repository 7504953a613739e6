"""Cages of native vector environments under the contracts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from counting_vector_env import CountingVectorEnv
from gymnasium.vector import SyncVectorEnv

from parllel.testing import CountingEnv, FaultyEnv
from parllel.testing.cages.cage_contract import CageContract
from parllel.testing.cages.cage_kinds import MakesSyncVectorCage
from parllel.testing.cages.native_cage_contract import NativeCageContract
from parllel.testing.cages.native_cage_hooks import NativeCageHooks
from parllel.testing.cages.native_reference import reset_carts
from parllel.testing.faulty_envs import DummyFaultError


class SyncVectorContract(MakesSyncVectorCage, CageContract):
    """The contract of environments one by one, which those of a SyncVectorEnv are under, too."""

    @pytest.mark.parametrize("phase", ["reset", "step"])
    def test_what_an_environment_raises_arrives_as_itself(self, phase: str) -> None:
        super().test_what_an_environment_raises_arrives_as_itself(phase)

    def test_what_is_raised_while_it_is_made_arrives_as_itself(self) -> None:
        factories = [CountingEnv, lambda: FaultyEnv("constructor")]
        with pytest.raises(DummyFaultError, match="constructor number 1") as caught:
            self.make(factories, seeds=(1, 2), index=4)
        assert "in environments 4 to 5, while they were made" in caught.value.__notes__

    def test_environments_have_the_same_spaces(self) -> None:
        with pytest.raises(RuntimeError, match="observation spaces are not equivalent"):
            self.make([CountingEnv, lambda: CountingEnv(layout="dict")])


class TestSyncNextStep(SyncVectorContract):
    pass


class TestSyncSameStep(SyncVectorContract):
    mode = "SameStep"


class TestSyncDisabled(SyncVectorContract):
    mode = "Disabled"


class TestAnyVectorEnv(NativeCageContract):
    """Of a class that nothing is known of."""

    def make_env(self, n: int) -> Any:
        return CountingVectorEnv(n, self.mode)


class TestAnyVectorEnvSameStep(TestAnyVectorEnv):
    mode = "SameStep"


class TestAnyVectorEnvDisabled(TestAnyVectorEnv):
    mode = "Disabled"


class TestCartPoleVectorEnv(NativeCageContract):
    has_state = True

    def make_env(self, n: int) -> Any:
        return gym.make_vec("CartPole-v1", n, vectorization_mode="vector_entry_point")

    def begin(self, env: Any, seeds: Sequence[int]) -> Any:
        # It takes one seed for all.
        return env.reset(seed=int(np.random.SeedSequence(seeds).generate_state(1)[0]))[0]

    def reset_some(self, env: Any, mask: Any) -> Any:
        return reset_carts(env.unwrapped, mask)


class TestSyncOfCartPoles(NativeCageContract):
    has_state = True
    rests = True
    mode = "Disabled"

    def make_env(self, n: int) -> Any:
        makes = [lambda: gym.make("CartPole-v1")] * n
        return SyncVectorEnv(makes, autoreset_mode=self.mode)


@pytest.mark.filterwarnings("ignore:.*precision lowered")
class TestEnvPool(NativeCageContract):
    def make_env(self, n: int, seed: Any = None) -> Any:
        envpool = pytest.importorskip("envpool")
        return envpool.make_gymnasium("CartPole-v1", num_envs=n, seed=seed, num_threads=1)

    def begin(self, env: Any, seeds: Sequence[int]) -> Any:
        return env.reset()[0]


class AtariHooks(NativeCageHooks):
    T = 12

    def make_env(self, n: int) -> Any:
        vector_env = pytest.importorskip("ale_py.vector_env")
        # Small pictures, and episodes of ten steps.
        return vector_env.AtariVectorEnv(
            "pong",
            n,
            autoreset_mode=self.mode,
            max_num_frames_per_episode=40,
            img_height=8,
            img_width=8,
            num_threads=1,
        )

    def begin(self, env: Any, seeds: Sequence[int]) -> Any:
        return env.reset(seed=np.array(seeds) & (2**31 - 1))[0]


class TestAtariNextStep(AtariHooks, NativeCageContract):
    pass


class TestAtariSameStep(AtariHooks):
    mode = "SameStep"
    test_columns = NativeCageContract.test_columns_are_those_of_the_environment_itself
