"""Reference batches of RecurrentSampler, from a plain loop over Gymnasium environments.

It uses no cages, handlers, agents, transforms or buffers: their rules are implemented independently.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.testing.sampler_setup import DISCOUNT, SamplerSetup
from parllel.testing.simulated_batches import Leaves, SimulatedBatch, observer
from parllel.types import Tree

Look: TypeAlias = Callable[[Tree], tuple[Leaves, float]]
# What has a row T with something in it, besides the value.
OBSERVED = ("env.observation", "agent.observation", "agent.doubled")


class SimulatedPlayer:
    """An environment that waits for the next batch after its episode, with the agent that plays it."""

    def __init__(self, env: gym.Env[Any, Any], seed: np.random.SeedSequence) -> None:
        # One for the environment and one for its action space, as in SimulatedColumn.
        first, second = (int(word) for word in seed.generate_state(2))
        self.env = env
        env.action_space.seed(second)
        self.trajs: list[tuple[int, float, float]] = []
        self.begin(first)

    def begin(self, seed: int | None = None) -> None:
        """Begin an episode with an empty memory."""
        self.observation = copy.deepcopy(self.env.reset(seed=seed)[0])
        self.memory = self.previous = 0
        self.over = False
        self.rewards: list[float] = []

    def step(self, action: int, seen: int) -> tuple[Tree, float, bool, bool, dict[str, Any]]:
        """Step, and update the memory."""
        result = copy.deepcopy(self.env.step(action))  # environments reuse their arrays
        self.observation, reward, terminated, truncated, _ = result
        self.memory, self.previous = (2 * self.memory + seen) % 16, action
        self.rewards.append(float(reward))
        if terminated or truncated:
            self.over = True
            discounted = sum(r * DISCOUNT**i for i, r in enumerate(self.rewards))
            self.trajs.append((len(self.rewards), sum(self.rewards), discounted))
        return result  # type: ignore[return-value]


def simulate_sequences(setup: SamplerSetup, n_batches: int) -> list[SimulatedBatch]:
    """Return the batches that a RecurrentSampler must return for `setup`."""
    envs = [factory() for factory in setup.factories]
    players = [SimulatedPlayer(*pair) for pair in zip(envs, setup.cage_seeds(), strict=True)]
    noise = np.random.default_rng(setup.seed)
    batches = []
    for number in range(n_batches):
        for player in players:
            if player.over:
                player.begin()
        batches.append(_batch(setup, players, noise, number))
        batches[-1].trajs = [player.trajs for player in players]
        for player in players:
            player.trajs = []
    for env in envs:
        env.close()
    return batches


def _batch(
    setup: SamplerSetup,
    players: list[SimulatedPlayer],
    noise: np.random.Generator,
    number: int,
) -> SimulatedBatch:
    T, B = setup.T, len(players)
    look = observer(setup, players[0].env.observation_space, number)
    draws = noise.integers(0, 1000, (T, B), dtype=np.int32)
    # Before anything is played: the agent trains on the batch from the state in which it began.
    initial = np.array([[player.memory for player in players]], np.float32)
    # Step transforms write valid rows only; without any, the agent sees the environment's own memory.
    shown = ("env.observation",) if setup.step_transforms else OBSERVED
    cells: dict[str, dict[tuple[int, int], Any]] = {}
    for b, player in enumerate(players):
        for t, values in _played(player, look, draws[:, b], shown):
            for path, value in values.items():
                cells.setdefault(path, {})[t, b] = np.asarray(value)
    fields = {path: _filled(path, values, T, B) for path, values in cells.items()}
    fields["agent.initial_rnn_state"] = initial
    for make in setup.batch_transforms:
        transform = make()
        numbers = np.asarray(fields[transform.source], np.float64)
        affine = transform.affine
        fields[transform.target] = (numbers * affine.scale + affine.shift).astype(np.float32)
    return SimulatedBatch(fields, [])


def _played(
    player: SimulatedPlayer, look: Look, draws: NDArray[np.int32], shown: tuple[str, ...]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Play one column of a batch; yield row numbers with what is stored in them, by path.

    draws: [T].  shown: paths that hold the last observation of an episode as well.
    """
    T = len(draws)
    for t, draw in enumerate(draws):
        seen, number_seen = look(player.observation)
        value = number_seen + player.memory
        yield t, {**seen, "agent.agent_info.value": np.float32(value)}
        before = player.previous
        n_actions = int(player.env.action_space.n)  # type: ignore[attr-defined]
        action = (int(np.floor(value)) + int(draw) + before) % n_actions
        final, reward, terminated, truncated, info = player.step(action, int(np.floor(number_seen)))
        # With the memory after the step: it has seen all but the final observation.
        final_value = look(final)[1] + player.memory if truncated else 0
        yield (
            t,
            {
                "agent.action": np.int64(action),
                "agent.agent_info.draw": draw,
                "agent.agent_info.prev_action": np.int64(before),
                "agent.final_value": np.float32(final_value),
                "env.reward": np.float32(reward),
                "env.terminated": terminated,
                "env.truncated": truncated,
                "env.done": terminated or truncated,
                "env.env_info.step": np.int64(info["step"]),
                "env.env_info.half": info["half"],
                "env.valid": True,
            },
        )
        if player.over:  # the environment's last observation stays, all else is zero from here
            raw, _ = look(final)
            yield t + 1, {path: x for path, x in raw.items() if path.startswith(shown)}
            return
    seen, value = look(player.observation)
    yield T, {**seen, "agent.agent_info.value": np.float32(value + player.memory)}


def _filled(path: str, values: dict[tuple[int, int], Any], T: int, B: int) -> Any:
    """Return an array with zeros where there is nothing; observations and values have a row T."""
    example = next(iter(values.values()))
    rows = T + 1 if path.startswith((*OBSERVED, "agent.agent_info.value")) else T
    array = np.zeros((rows, B, *example.shape), example.dtype)
    for (t, b), value in values.items():
        array[t, b] = value
    return array
