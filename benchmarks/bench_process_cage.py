"""Is one ProcessCage per environment faster than gymnasium's AsyncVectorEnv with as many processes?

Both fill a buffer [T, n] of observations, rewards and flags in the same dtypes, from the same actions drawn
beforehand, and count steps of environments: slots in which the peer only resets are not steps. Ours also
records trajectories and final observations. The peer runs at the best of its settings.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from numpy.typing import NDArray

from benchmarks.harness.measure import Comparison, Sides, timed, timed_sides
from benchmarks.samples import make_samples
from parllel.buffers import Field
from parllel.buffers.tree import buffer_close, buffer_rotate
from parllel.cages import ProcessCage, example_of
from parllel.types import BatchSpec

T = 64
SETTINGS = list(product((True, False), (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)))


def draw_actions(make_env: Callable[[], Any], n: int) -> NDArray[Any]:
    """Draw random actions [T, n, ...]."""
    env = make_env()
    space = env.action_space
    env.close()
    space.seed(0)
    return np.array([[space.sample() for _ in range(n)] for _ in range(T)])


class OurLoop:
    """Rows of ProcessCages, as a sampler with an agent that does nothing drives them."""

    def __init__(self, make_env: Callable[[], Any], actions: NDArray[Any]) -> None:
        n = actions.shape[1]
        self.actions = actions
        self.cages: list[ProcessCage] = []
        for index, seed in enumerate(_seeds(n)):
            self.cages.append(ProcessCage(make_env, seed=seed, index=index))
        observation = example_of(self.cages[0].spaces.observation)
        action = Field(actions[0, 0], dtype=actions.dtype)
        spec = BatchSpec(T, n)
        self.samples = make_samples(spec, action, observation, storage="managed")
        for index, cage in enumerate(self.cages):
            cage.set_samples_buffer(self.samples, slice(index, index + 1))
            cage.start_reset(0)
        for cage in self.cages:
            cage.finish_row()
        self.action_rows = np.asarray(self.samples.agent.action)

    def run(self) -> int:
        """Collect a batch and return its steps."""
        cages, actions, action_rows = self.cages, self.actions, self.action_rows
        for t in range(T):
            action_rows[t] = actions[t]
            for cage in cages:
                cage.start_row(t)
            for cage in cages:
                cage.finish_row()
        for cage in cages:
            cage.collect_final_observations()
            cage.collect_completed_trajs()
        buffer_rotate(self.samples)
        return T * len(cages)

    def results(self) -> tuple[NDArray[Any], ...]:
        """Return rewards and flags of the last batch, and the observation that follows it."""
        env = self.samples.env
        return tuple(
            np.array(leaf)
            for leaf in (env.reward, env.terminated, env.truncated, env.observation[0])
        )

    def close(self) -> None:
        """End the processes."""
        with ExitStack() as stack:
            for cage in self.cages:
                stack.callback(cage.close)
        buffer_close(self.samples)


class PeerLoop:
    """The usual loop over an AsyncVectorEnv, into arrays that were allocated beforehand."""

    def __init__(
        self,
        make_env: Callable[[], Any],
        actions: NDArray[Any],
        shared_memory: bool,
        autoreset: AutoresetMode,
    ) -> None:
        n = actions.shape[1]
        self.name = f"shared_memory={shared_memory}, {autoreset.value}"
        self.resets_within_step = autoreset is AutoresetMode.SAME_STEP
        self.actions = actions
        # What it returns is copied into rows at once, so it need not copy as well.
        self.envs = AsyncVectorEnv(
            [make_env] * n, shared_memory=shared_memory, copy=False, autoreset_mode=autoreset
        )
        shape = self.envs.single_observation_space.shape or ()
        self.observation = np.zeros((T + 1, n, *shape), np.float32)
        self.reward = np.zeros((T, n), np.float32)
        self.terminated, self.truncated = np.zeros((T, n), bool), np.zeros((T, n), bool)
        self.ended = np.zeros(n, bool)
        seeds: list[int | None] = [int(seed.generate_state(1)[0]) for seed in _seeds(n)]
        self.observation[0] = self.envs.reset(seed=seeds)[0]

    def run(self) -> int:
        """Collect a batch and return its steps, without slots that were spent on resets."""
        envs, actions = self.envs, self.actions
        for t in range(T):
            observation, reward, terminated, truncated, _ = envs.step(actions[t])
            self.observation[t + 1] = observation
            self.reward[t] = reward
            self.terminated[t] = terminated
            self.truncated[t] = truncated
        self.observation[0] = self.observation[T]
        done = self.terminated | self.truncated
        resets = 0 if self.resets_within_step else int(done[:-1].sum() + self.ended.sum())
        self.ended = done[-1]
        return done.size - resets

    def results(self) -> tuple[NDArray[Any], ...]:
        """Return rewards and flags of the last batch, and the observation that follows it."""
        arrays = (self.reward, self.terminated, self.truncated, self.observation[0])
        return tuple(array.copy() for array in arrays)

    def close(self) -> None:
        """End the processes."""
        self.envs.close()


def _seeds(n: int) -> list[np.random.SeedSequence]:
    return [np.random.SeedSequence(0, spawn_key=(i,)) for i in range(n)]


@contextmanager
def processes(env_id: str, n: int) -> Iterator[Sides]:
    """Step `n` environments, each in a process of its own."""
    make_env = partial(gym.make, env_id)
    actions = draw_actions(make_env, n)
    with ExitStack() as stack:
        peers = []
        for setting in SETTINGS:
            peers.append(PeerLoop(make_env, actions, *setting))
            stack.callback(peers[-1].close)
        ours = OurLoop(make_env, actions)
        stack.callback(ours.close)
        # The first batch of each, while all are at the same step of the same episodes.
        ours.run()
        first, expected = ours.results(), []
        for peer in peers:
            peer.run()
            if peer.resets_within_step:
                expected.append(peer.results())

        def check() -> None:
            for results in expected:
                for mine, theirs in zip(first, results, strict=True):
                    np.testing.assert_array_equal(mine, theirs)

        peer = best(peers)
        yield Sides(ours.run, peer.run, check, note=f"AsyncVectorEnv({peer.name})")


def best(peers: list[PeerLoop]) -> PeerLoop:
    """Return the fastest of the settings, by the median of five batches in turn."""
    seconds: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for _ in range(5):
        for peer in peers:
            seconds[peer.name].append(timed(peer.run, 1).per_unit)
    return min(peers, key=lambda peer: statistics.median(seconds[peer.name]))


def _comparison(env_id: str, n: int) -> Comparison:
    return Comparison(
        f"process_cage/{env_id}-n={n}",
        f"{n} ProcessCage{'s' if n > 1 else ''}, {env_id}, against AsyncVectorEnv",
        partial(processes, env_id, n),
        target=1.0,
        aim=1.5,
        quick=env_id == "CartPole-v1" and n == 1,
        needs=("mujoco", "imageio") if env_id == "HalfCheetah-v5" else (),
    )


COMPARISONS = [
    _comparison(env_id, n) for env_id in ("CartPole-v1", "HalfCheetah-v5") for n in (1, 2, 4)
]

test_process_cage = timed_sides(COMPARISONS)
