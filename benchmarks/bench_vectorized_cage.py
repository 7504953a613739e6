"""What is the overhead of a VectorizedCage over the environments that it steps?

The other side is the shortest loop there is: the same environments with the same seeds and actions, stepped
and reset, and nothing kept. Ours also fills a buffer and keeps trajectories and final observations. The third
question is what a record of episodes with a `step` of its own costs against one without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from benchmarks.samples import make_samples
from parllel.buffers import Field
from parllel.buffers.tree import buffer_close, buffer_rotate
from parllel.cages import TrajInfo, VectorizedCage, example_of
from parllel.types import BatchSpec

T, B = 64, 16
MAX_STEPS = 1000  # steps of an episode
Actions = list[list[Any]]


class OwnStep(TrajInfo):
    """Keep the same numbers in a `step` that has to be called."""

    def step(self, *args: Any) -> None:
        """Do as every TrajInfo does."""
        super().step(*args)


def draw_actions(make_env: Callable[[], Any]) -> Actions:
    """Draw random actions [T][B], as environments take them."""
    env = make_env()
    space = env.action_space
    env.close()
    space.seed(0)
    discrete = isinstance(space, gym.spaces.Discrete)
    return [
        [int(space.sample()) if discrete else space.sample() for _ in range(B)] for _ in range(T)
    ]


class OurLoop:
    """Rows of one cage, as a sampler with an agent that does nothing drives it."""

    def __init__(
        self,
        make_env: Callable[[], Any],
        actions: Actions,
        traj_info: Callable[[], TrajInfo] = TrajInfo,
    ) -> None:
        self.cage = VectorizedCage([make_env] * B, seeds=_seeds(), traj_info=traj_info)
        spaces = self.cage.spaces
        action = Field(actions[0][0], dtype=spaces.action.dtype)
        self.samples = make_samples(BatchSpec(T, B), action, example_of(spaces.observation))
        self.cage.set_samples_buffer(self.samples, slice(0, B))
        # Written once: to hand actions over is the agent's part.
        np.asarray(self.samples.agent.action)[...] = actions
        self.cage.start_reset(0)
        self.cage.finish_row()

    def run(self) -> int:
        """Collect a batch and return its steps."""
        cage = self.cage
        for t in range(T):
            cage.start_row(t)
            cage.finish_row()
        cage.collect_final_observations()
        self.trajs = cage.collect_completed_trajs()
        buffer_rotate(self.samples.env)
        return T * B

    def close(self) -> None:
        """Close the environments and the buffer."""
        self.cage.close()
        buffer_close(self.samples)


class BareLoop:
    """Step and reset, and keep nothing but what comes next."""

    def __init__(self, make_env: Callable[[], Any], actions: Actions) -> None:
        self.actions = actions
        self.envs = [make_env() for _ in range(B)]
        seeds = [int(seed.generate_state(2)[0]) for seed in _seeds()]
        self.last = [env.reset(seed=s)[0] for env, s in zip(self.envs, seeds, strict=True)]

    def run(self) -> int:
        """Take the steps of a batch and return how many there were."""
        envs, last = self.envs, self.last
        for row in self.actions:
            for i, (env, action) in enumerate(zip(envs, row, strict=True)):
                observation, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    observation, _ = env.reset()
                last[i] = observation
        return T * B

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


def _seeds() -> list[np.random.SeedSequence]:
    return [np.random.SeedSequence(0, spawn_key=(i,)) for i in range(B)]


@contextmanager
def against_bare_loop(env_id: str) -> Iterator[Sides]:
    """Step the same episodes with and without a cage."""
    make_env = partial(gym.make, env_id)
    actions = draw_actions(make_env)
    ours, theirs = OurLoop(make_env, actions), BareLoop(make_env, actions)
    try:
        # Until no environment is in its first episode, in which a cage checks what it returns.
        for _ in range(MAX_STEPS // T + 1):
            ours.run()
            theirs.run()
        mine: NDArray[Any] = np.array(ours.samples.env.observation[0])
        bare = np.array(theirs.last, mine.dtype)

        def check() -> None:
            np.testing.assert_array_equal(mine, bare)

        yield Sides(ours.run, theirs.run, check)
    finally:
        ours.close()
        theirs.close()


@contextmanager
def against_own_step(env_id: str) -> Iterator[Sides]:
    """Keep statistics in the two ways that there are."""
    make_env = partial(gym.make, env_id)
    actions = draw_actions(make_env)
    loops = [
        OurLoop(make_env, actions, partial(made, discount=0.99)) for made in (TrajInfo, OwnStep)
    ]
    try:
        found = []
        for loop in loops:
            for _ in range(10):
                loop.run()
            found.append([traj.as_dict() for traj in loop.trajs])

        def check() -> None:
            assert found[0] == found[1]

        yield Sides(loops[0].run, loops[1].run, check)
    finally:
        for loop in loops:
            loop.close()


COMPARISONS = [
    Comparison(
        f"vectorized_cage/{env_id}",
        f"VectorizedCage of {B}, {env_id}, against env.step alone",
        partial(against_bare_loop, env_id),
        reads="slower",
        quick=env_id == "CartPole-v1",
        needs=("mujoco", "imageio") if env_id == "HalfCheetah-v5" else (),
    )
    for env_id in ("CartPole-v1", "HalfCheetah-v5")
]
COMPARISONS.append(
    Comparison(
        "vectorized_cage/own-step",
        f"VectorizedCage of {B}, CartPole-v1: TrajInfo against one with its own step",
        partial(against_own_step, "CartPole-v1"),
    )
)

test_vectorized_cage = timed_sides(COMPARISONS)
