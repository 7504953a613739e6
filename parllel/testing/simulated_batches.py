"""Reference batches of samplers with automatic resets, from a plain loop over Gymnasium environments.

It uses no cages, handlers, agents, transforms or buffers: their rules are implemented independently.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.testing.sampler_setup import DISCOUNT, SamplerSetup
from parllel.types import Tree

NARROWED = {"float64": np.float32, "int64": np.int32}
Leaves = dict[str, NDArray[Any]]


@dataclass
class SimulatedBatch:
    """The fields of a batch by path, and its episodes.

    Attributes:
        fields: [T, B, ...], or [T + 1, B, ...] where the row after the batch counts.
        trajs: for each column the (length, return, discounted return) of the episodes that ended.
    """

    fields: Leaves = field(default_factory=dict)
    trajs: list[list[tuple[int, float, float]]] = field(default_factory=list)


class SimulatedColumn:
    """One environment that is reset within the step that ends its episode."""

    def __init__(self, env: gym.Env[Any, Any], seed: np.random.SeedSequence) -> None:
        # One for the environment and one for its action space, as one for both would give equal draws.
        first, second = (int(word) for word in seed.generate_state(2))
        self.env = env
        env.action_space.seed(second)
        self.observation, _ = env.reset(seed=first)
        self.trajs: list[tuple[int, float, float]] = []
        self._rewards: list[float] = []

    def step(self, action: Any) -> tuple[Tree, float, bool, bool, dict[str, Any]]:
        """Step and return the result; afterwards `observation` is the next one, if need be of a reset."""
        result = copy.deepcopy(self.env.step(action))  # environments reuse their arrays
        self.observation, reward, terminated, truncated, _ = result
        self._rewards.append(float(reward))
        if terminated or truncated:
            self.observation, _ = self.env.reset()
            discounted = sum(r * DISCOUNT**i for i, r in enumerate(self._rewards))
            self.trajs.append((len(self._rewards), sum(self._rewards), discounted))
            self._rewards = []
        return result  # type: ignore[return-value]

    def take_trajs(self) -> list[tuple[int, float, float]]:
        """Return the episodes that ended since the last call."""
        trajs, self.trajs = self.trajs, []
        return trajs


def simulate(
    setup: SamplerSetup,
    n_batches: int,
    decorrelation_steps: int = 0,
    decorrelation_seed: Any = None,
) -> list[SimulatedBatch]:
    """Return the batches that a sampler with automatic resets must return for `setup`."""
    envs = [factory() for factory in setup.factories]
    columns = [SimulatedColumn(*pair) for pair in zip(envs, setup.cage_seeds(), strict=True)]
    if decorrelation_steps:
        generator = np.random.default_rng(decorrelation_seed)
        for column, count in zip(
            columns, generator.integers(0, decorrelation_steps + 1, len(columns)), strict=True
        ):
            for _ in range(count):
                # Random steps from the seeded action space, not from the agent.
                column.step(column.env.action_space.sample())
            column.take_trajs()
    noise = np.random.default_rng(setup.seed)
    batches = [_batch(setup, columns, noise, number) for number in range(n_batches)]
    for env in envs:
        env.close()
    return batches


def _batch(
    setup: SamplerSetup,
    columns: list[SimulatedColumn],
    noise: np.random.Generator,
    number: int,
) -> SimulatedBatch:
    T, B = setup.T, len(columns)
    n_actions = columns[0].env.action_space.n  # type: ignore[attr-defined]
    look = observer(setup, columns[0].env.observation_space, number)
    # For the whole batch at once, as the handler asks an agent for it.
    draws = noise.integers(0, 1000, (T, B), dtype=np.int32)
    cells: dict[str, list[list[Any]]] = defaultdict(lambda: [[] for _ in range(T + 1)])

    def put(t: int, values: dict[str, Any]) -> None:
        for path, value in values.items():
            cells[path][t].append(np.asarray(value))

    for t in range(T):
        for b, column in enumerate(columns):
            seen, value = look(column.observation)
            put(t, {**seen, "agent.agent_info.value": np.float32(value)})
            action = (int(np.floor(value)) + int(draws[t, b])) % int(n_actions)
            final, reward, terminated, truncated, info = column.step(action)
            # Of the observation that a reset replaces: the next row is of another episode.
            final_value = np.float32(look(final)[1] if truncated else 0)
            put(
                t,
                {
                    "agent.action": np.int64(action),
                    "agent.agent_info.draw": draws[t, b],
                    "agent.final_value": final_value,
                    "env.reward": np.float32(reward),
                    "env.terminated": terminated,
                    "env.truncated": truncated,
                    "env.done": terminated or truncated,
                    "env.env_info.step": np.int64(info["step"]),
                    "env.env_info.half": info["half"],
                },
            )
    for column in columns:
        seen, value = look(column.observation)
        put(T, {**seen, "agent.agent_info.value": np.float32(value)})
    # Only observations and values have anything in row T.
    fields = {path: np.array([row for row in rows if row]) for path, rows in cells.items()}
    for make in setup.batch_transforms:
        transform = make()
        numbers = np.asarray(fields[transform.source], np.float64)
        affine = transform.affine
        fields[transform.target] = (numbers * affine.scale + affine.shift).astype(np.float32)
    return SimulatedBatch(fields, [column.take_trajs() for column in columns])


def observer(
    setup: SamplerSetup, space: gym.Space[Any], number: int
) -> Callable[[Tree], tuple[Leaves, float]]:
    """Return a function from an observation to its fields by path and its value, in batch `number`."""
    transforms = [make() for make in setup.step_transforms]

    def look(observation: Tree) -> tuple[Leaves, float]:
        nodes = {"env.observation": dict(_leaves(space, observation))}
        for transform in transforms:
            affine = transform.affine
            # All rows of a batch by the statistics before it; those of its own count from the next one on.
            shift = affine.shift + affine.drift * number
            nodes[transform.target] = {
                path: (leaf.astype(np.float64) * affine.scale + shift).astype(np.float32)
                for path, leaf in nodes[transform.source].items()
            }
        # Without a transform that writes it, the agent sees what the environment returned.
        nodes.setdefault("agent.observation", nodes["env.observation"])
        numbers = np.concatenate(
            [leaf.astype(np.float64).reshape(-1) for leaf in nodes["agent.observation"].values()]
        )
        # `fingerprint` of one observation, written out.
        value = sum(weight * float(x) for weight, x in enumerate(numbers, start=1))
        return {at + path: leaf for at, node in nodes.items() for path, leaf in node.items()}, value

    return look


def _leaves(space: gym.Space[Any], observation: Tree) -> Iterator[tuple[str, NDArray[Any]]]:
    if isinstance(space, spaces.Dict):
        for name, inner in space.spaces.items():
            for path, leaf in _leaves(inner, observation[name]):
                yield f".{name}{path}", leaf
    elif isinstance(space, spaces.Tuple):
        for i, inner in enumerate(space.spaces):
            for path, leaf in _leaves(inner, observation[i]):
                yield f"._{i}{path}", leaf
    else:
        dtype = str(space.dtype)
        yield "", np.array(observation, NARROWED.get(dtype, space.dtype))
