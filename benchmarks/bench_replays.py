"""What do drawing from a replay and filling it cost, beside the replays of other libraries?

A million transitions of CartPole's and of HalfCheetah's size. Each side draws 256 transitions uniformly, and
takes in the steps of 16 environments, row by row. CPU time counts, of all threads; torch has one.
`make bench-replays` runs it in a virtual environment that has the other libraries.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.measure import Comparison, Count, Sides, timed_sides
from parllel.buffers import AgentSamples, EnvSamples, Field, Samples, allocate, insert_field
from parllel.buffers.tree import buffer_arrays
from parllel.replays import UniformReplay
from parllel.types import BatchSpec

SIZE, BATCH, N_ENVS, T = 1_000_000, 256, 16, 64
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Scene:
    """Sizes of observations and actions; no dimensions of actions: they are discrete."""

    what: str
    observation: int
    actions: int

    def action(self, n: int) -> NDArray[Any]:
        """Return n actions."""
        return np.zeros((n, self.actions), np.float32) if self.actions else np.zeros(n, np.int64)


SCENES = {"cartpole": Scene("CartPole", 4, 0), "half-cheetah": Scene("HalfCheetah", 17, 6)}


class Side(Protocol):
    """A replay that holds the rows of N_ENVS environments."""

    def add(self, number: int, done: NDArray[np.bool_]) -> None:
        """Take in a row: `observations(number)`, reward `number`, and the observation after it."""

    def draw(self) -> tuple[Any, Any, Any]:
        """Return observation, reward and next observation of transitions."""


def observations(scene: Scene, number: int) -> Floats:
    """Return the observations of a row, from which it can be told."""
    return np.full((N_ENVS, scene.observation), number, np.float32)


class Ours:
    """A UniformReplay, whose rows are written as cages write them."""

    def __init__(self, scene: Scene, size: int) -> None:
        spec, cell = BatchSpec(T, N_ENVS), np.zeros(scene.observation, np.float32)
        samples: Any = allocate(
            Samples(
                agent=AgentSamples(
                    action=scene.action(1)[0],
                    agent_info=None,
                    final_observation=Field(cell, current_batch_only=True),
                ),
                env=EnvSamples(
                    observation=Field(cell, padding=1),
                    reward=np.float32(0),
                    terminated=False,
                    truncated=False,
                    done=False,
                    env_info=None,
                ),
            ),
            spec,
            batches=-(-size // spec.size),
        )
        self.samples = insert_field(samples, "agent.observation", samples.env.observation)
        self.replay: Any = UniformReplay(self.samples, batch_size=BATCH, discount=0.99, seed=0)
        self._arrays = buffer_arrays(self.samples)
        self._scene, self._t, self._row = scene, 0, -1
        self._action = scene.action(N_ENVS)
        # Cages and handlers have such views of the rows.
        env, agent = samples.env, samples.agent
        self._observation = env.observation.block.public()[1:]
        self._rows = [
            np.asarray(leaf.full)
            for leaf in (agent.action, env.reward, env.terminated, env.truncated, env.done)
        ]

    def add(self, number: int, done: NDArray[np.bool_]) -> None:
        """Write a row, and add the batch that it ends."""
        if self._t == 0:
            if self._row >= 0:
                for array in self._arrays:
                    array.rotate()
            self._row = self._arrays[0].block.window
            self._observation[self._row] = observations(self._scene, number)
        row = self._row + self._t
        self._observation[row + 1] = observations(self._scene, number + 1)
        values = self._action, number, done, False, done
        for rows, value in zip(self._rows, values, strict=True):
            rows[row] = value
        self._t = (self._t + 1) % T
        if self._t == 0:
            self.replay.add(self.samples)

    def draw(self) -> tuple[Any, Any, Any]:
        """Draw into arrays that are used again."""
        drawn = self.replay.sample()
        return drawn.observation, drawn.reward, drawn.next_observation


class StableBaselines3:
    """Its ReplayBuffer."""

    def __init__(self, scene: Scene, size: int) -> None:
        import gymnasium as gym
        import torch

        torch.set_num_threads(1)
        buffers: Any = importlib.import_module("stable_baselines3.common.buffers")
        box = partial(gym.spaces.Box, -np.inf, np.inf, dtype=np.float32)
        action = box((scene.actions,)) if scene.actions else gym.spaces.Discrete(2)
        self._buffer = buffers.ReplayBuffer(
            size, box((scene.observation,)), action, device="cpu", n_envs=N_ENVS
        )
        self._scene = scene
        self._infos: list[dict[str, Any]] = [{} for _ in range(N_ENVS)]
        self._action = scene.action(N_ENVS)

    def add(self, number: int, done: NDArray[np.bool_]) -> None:
        """Add a row."""
        one, two = observations(self._scene, number), observations(self._scene, number + 1)
        reward = np.full(N_ENVS, number, np.float32)
        self._buffer.add(one, two, self._action, reward, done, self._infos)

    def draw(self) -> tuple[Any, Any, Any]:
        """Draw into new tensors."""
        drawn = self._buffer.sample(BATCH)
        return drawn.observations, drawn.rewards[:, 0], drawn.next_observations


class Cpprb:
    """Its ReplayBuffer, with next observations of their own: the environments' episodes end at any time."""

    kind = "ReplayBuffer"

    def __init__(self, scene: Scene, size: int, **options: Any) -> None:
        cpprb: Any = importlib.import_module("cpprb")
        action = (
            {"shape": scene.actions, "dtype": np.float32} if scene.actions else {"dtype": np.int64}
        )
        self._buffer = getattr(cpprb, self.kind)(
            size,
            {
                "obs": {"shape": scene.observation},
                "act": action,
                "rew": {},
                "next_obs": {"shape": scene.observation},
                "done": {},
            },
            **options,
        )
        self._scene, self._action = scene, scene.action(N_ENVS)

    def add(self, number: int, done: NDArray[np.bool_]) -> None:
        """Add a row, as 16 transitions."""
        self._buffer.add(
            obs=observations(self._scene, number),
            act=self._action,
            rew=np.full(N_ENVS, number, np.float32),
            next_obs=observations(self._scene, number + 1),
            done=done,
        )

    def draw(self) -> tuple[Any, Any, Any]:
        """Draw into new arrays."""
        drawn = self._buffer.sample(BATCH)
        return drawn["obs"], drawn["rew"][:, 0], drawn["next_obs"]


class TorchRl:
    """Its TensorDictReplayBuffer over a LazyTensorStorage."""

    kind = "TensorDictReplayBuffer"

    def __init__(self, scene: Scene, size: int, **options: Any) -> None:
        import torch

        torch.set_num_threads(1)
        data: Any = importlib.import_module("torchrl.data")
        self._torch: Any = torch
        self._dict: Any = importlib.import_module("tensordict").TensorDict
        storage = data.LazyTensorStorage(size)
        kind: Any = getattr(data, self.kind)
        self._buffer = kind(storage=storage, batch_size=BATCH, **options)
        self._scene, self._action = scene, torch.from_numpy(scene.action(N_ENVS))

    def add(self, number: int, done: NDArray[np.bool_]) -> None:
        """Extend it by a row, as 16 transitions."""
        from_numpy = self._torch.from_numpy
        row = {
            "observation": from_numpy(observations(self._scene, number)),
            "action": self._action,
            "reward": from_numpy(np.full(N_ENVS, number, np.float32)),
            "next_observation": from_numpy(observations(self._scene, number + 1)),
            "done": from_numpy(done),
        }
        self._buffer.extend(self._dict(row, [N_ENVS]))

    def draw(self) -> tuple[Any, Any, Any]:
        """Draw into new tensors."""
        drawn = self._buffer.sample()
        return drawn["observation"], drawn["reward"], drawn["next_observation"]


def filled(make: Callable[[Scene, int], Side], scene: Scene, size: int) -> Side:
    """Return a full replay."""
    side, rng = make(scene, size), np.random.default_rng(0)
    # Whole batches, and more than there is room for.
    for number in range((-(-size // (N_ENVS * T)) + 2) * T):
        side.add(number, rng.random(N_ENVS) < 0.005)
    return side


def check(sides: list[Side]) -> None:
    """Check that what is drawn was stored."""
    for side in sides:
        for _ in range(5):
            one, reward, two = (np.asarray(part) for part in side.draw())
            assert one.shape[0] == BATCH
            assert (one[:, 0] == reward).all()
            assert (two == one + 1).all()


@contextmanager
def drawing(theirs: Callable[[Scene, int], Side], scene: Scene, size: int) -> Iterator[Sides]:
    """Draw a batch from a full replay."""
    sides = [filled(make, scene, size) for make in (Ours, theirs)]

    def draw(side: Side) -> int:
        side.draw()
        return BATCH

    ours, other = (partial(draw, side) for side in sides)
    yield Sides(ours, other, partial(check, sides), clock=time.process_time)


@contextmanager
def inserting(theirs: Callable[[Scene, int], Side], scene: Scene, size: int) -> Iterator[Sides]:
    """Take in T rows of N_ENVS environments."""
    sides = [filled(make, scene, size) for make in (Ours, theirs)]
    numbers, done = [0, 0], np.zeros(N_ENVS, bool)

    def insert(which: int) -> int:
        begin, side = numbers[which], sides[which]
        for number in range(begin, begin + T):
            side.add(number, done)
        # Numbers that float32 holds exactly, and that go on from where they were.
        numbers[which] = begin + T if begin < 10_000_000 else 0
        return T * N_ENVS

    ours, other = (partial(insert, which) for which in range(2))
    yield Sides(ours, other, lambda: None, clock=time.process_time)


PEERS: dict[str, tuple[str, Callable[[Scene, int], Side], str]] = {
    "sb3": ("Stable-Baselines3's ReplayBuffer", StableBaselines3, "stable_baselines3"),
    "cpprb": ("cpprb's ReplayBuffer", Cpprb, "cpprb"),
    "torchrl": ("TorchRL's TensorDictReplayBuffer", TorchRl, "torchrl"),
}

COMPARISONS = [
    Comparison(
        f"replays/{what}-{scene}-{peer}",
        f"{words} of {SCENES[scene].what}, {SIZE:,} stored: UniformReplay against {name}",
        partial(work, make, SCENES[scene], SIZE),
        target=1.8 if what == "draw" else None,
        quick=False,
        needs=(module,),
    )
    for what, words, work in (
        ("draw", f"draw {BATCH} transitions", drawing),
        ("insert", f"take in rows of {N_ENVS} environments", inserting),
    )
    for scene in SCENES
    for peer, (name, make, module) in PEERS.items()
]


def bytes_of_transition() -> int:
    """Return what a transition of HalfCheetah takes, with the books and the ends of episodes."""
    side = Ours(SCENES["half-cheetah"], 100_000)
    done = np.zeros(N_ENVS, bool)
    for number in range(100_000 // N_ENVS):
        side.add(number, done)
    state: Any = side.replay.state()["stored"]
    arrays = sum(array.block.nbytes for array in buffer_arrays(side.samples))
    books = state["link"].nbytes + sum(table.nbytes for table in state["last"]["tables"])
    return int(-(-(arrays + books) // 100_000))


COUNTS = [
    Count(
        "replays/bytes",
        "memory for a transition of HalfCheetah; Stable-Baselines3's ReplayBuffer takes 172",
        "bytes",
        bytes_of_transition,
        at_most=120,
        aim=120,
    )
]

test_replays = timed_sides(COMPARISONS)


def test_bytes() -> None:
    """Count the bytes of a transition."""
    (question,) = COUNTS
    assert question.count() <= question.at_most
