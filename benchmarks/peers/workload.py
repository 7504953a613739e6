"""The workload of all sides: environments, seeds and actions.

Imported by the Python of every peer, so it needs no more than numpy and gymnasium.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.synthetic_env import SyntheticEnv


@dataclass(frozen=True)
class Workload:
    """T steps of each of B environments.

    Attributes:
        env_id: for `gymnasium.make`, or "synthetic".
        B, T: columns and rows of a batch.
        seed: of the environments and of the actions.
        options: of the synthetic environment.
    """

    env_id: str
    B: int = 16
    T: int = 64
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def factory(self) -> Callable[[], gym.Env[Any, Any]]:
        """Return what makes one environment; all sides are given the same."""
        return partial(make_env, self.env_id, self.options)

    def seed_sequences(self) -> list[np.random.SeedSequence]:
        """Return one for each environment, in the order of the columns."""
        return [np.random.SeedSequence(self.seed, spawn_key=(b,)) for b in range(self.B)]

    def seeds(self) -> list[int]:
        """Return what `reset(seed=...)` of each environment is given at the start."""
        return [int(sequence.generate_state(1)[0]) for sequence in self.seed_sequences()]

    def actions(self) -> NDArray[Any]:
        """Draw the actions of a batch, [T, B, ...]; every batch repeats them."""
        env = self.factory()()
        space = env.action_space
        env.close()
        space.seed(self.seed)
        return np.array([[space.sample() for _ in range(self.B)] for _ in range(self.T)])

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values, from which `Workload(**values)` makes it again."""
        return asdict(self)


def make_env(env_id: str, options: dict[str, Any]) -> gym.Env[Any, Any]:
    """Make one environment, as a user of gymnasium would."""
    if env_id == "synthetic":
        return SyntheticEnv(**options)
    if env_id.startswith("ALE/"):
        import ale_py

        gym.register_envs(ale_py)
    if env_id.startswith("MiniGrid"):
        from minigrid.wrappers import ImgObsWrapper

        # The mission is a text, which no peer can hold in an array.
        image_only: gym.Env[Any, Any] = ImgObsWrapper(gym.make(env_id))  # type: ignore[no-untyped-call]
        return image_only
    return gym.make(env_id)


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which all sides keep observations: what training wants."""
    return np.dtype(np.float32) if dtype == np.float64 else dtype


class Rows:
    """What a peer's loop fills: training-ready arrays, allocated beforehand.

    observation: [T + 1, B, ...].  reward: [T, B] float32.  terminated, truncated: [T, B] bool.
    final: `(t, b, observation)` of episodes that ended, where the peer resets within the step.
    """

    def __init__(self, workload: Workload, space: gym.Space[Any]) -> None:
        T, B = workload.T, workload.B
        dtype = stored_dtype(np.dtype(space.dtype))
        self.observation = np.zeros((T + 1, B, *(space.shape or ())), dtype)
        self.reward = np.zeros((T, B), np.float32)
        self.terminated = np.zeros((T, B), bool)
        self.truncated = np.zeros((T, B), bool)
        self.final: list[tuple[int, int, Any]] = []
        self._ended = np.zeros(B, bool)

    def begin(self) -> None:
        """Start a batch: the observation after the last one is the first of this one."""
        self.observation[0] = self.observation[-1]
        self.final.clear()

    def count_without_resets(self) -> int:
        """Return the steps of the batch if the row after an end only reset the environment."""
        done = self.terminated | self.truncated
        resets = int(done[:-1].sum() + self._ended.sum())
        self._ended = done[-1].copy()
        return done.size - resets

    def trace(self, steps: int) -> dict[str, float]:
        """Return what tells whether two sides stepped the same environments."""
        ended = int((self.terminated | self.truncated).sum())
        return {
            "steps": steps,
            "reward": float(self.reward.sum(dtype=np.float64)),
            "observation": float(self.observation[1:].sum(dtype=np.float64)),
            "ended": ended,
        }
