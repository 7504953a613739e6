"""Compute what a RecurrentSampler must return, by a plain loop over Gymnasium environments.

Nothing of cages, handlers, agents, transforms or buffers takes part: their rules are written out anew.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.testing.sampler_setup import DISCOUNT, SamplerSetup
from parllel.testing.simulated_batches import SimulatedBatch, observer
from parllel.types import Tree

OBSERVED = ("env.observation", "agent.observation", "agent.doubled")


class SimulatedPlayer:
    """An environment that waits for the next batch after its episode, with the agent that plays it."""

    def __init__(self, env: gym.Env[Any, Any], seed: np.random.SeedSequence) -> None:
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
    space = players[0].env.observation_space
    look = observer(setup, space, number)
    draws = noise.integers(0, 1000, (T, B), dtype=np.int32)
    cells: dict[str, dict[tuple[int, int], Any]] = {}

    def put(t: int, b: int, values: dict[str, Any]) -> None:
        for path, value in values.items():
            cells.setdefault(path, {})[t, b] = np.asarray(value)

    initial = np.array([[player.memory for player in players]], np.float32)
    for b, player in enumerate(players):
        for t in range(T):
            seen, number_seen = look(player.observation)
            value = number_seen + player.memory
            put(t, b, {**seen, "agent.agent_info.value": np.float32(value)})
            before = player.previous
            action = (int(np.floor(value)) + int(draws[t, b]) + before) % int(
                player.env.action_space.n  # type: ignore[attr-defined]
            )
            final, reward, terminated, truncated, info = player.step(
                action, int(np.floor(number_seen))
            )
            final_value = look(final)[1] + player.memory if truncated else 0
            put(
                t,
                b,
                {
                    "agent.action": np.int64(action),
                    "agent.agent_info.draw": draws[t, b],
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
                shown = ("env.observation",) if setup.step_transforms else OBSERVED
                put(t + 1, b, {p: x for p, x in raw.items() if p.startswith(shown)})
                break
        else:
            seen, value = look(player.observation)
            put(T, b, {**seen, "agent.agent_info.value": np.float32(value + player.memory)})
    fields = {path: _filled(path, values, T, B) for path, values in cells.items()}
    fields["agent.initial_rnn_state"] = initial
    for make in setup.batch_transforms:
        transform = make()
        numbers = np.asarray(fields[transform.source], np.float64)
        affine = transform.affine
        fields[transform.target] = (numbers * affine.scale + affine.shift).astype(np.float32)
    return SimulatedBatch(fields, [])


def _filled(path: str, values: dict[tuple[int, int], Any], T: int, B: int) -> Any:
    """Return an array with zeros where there is nothing; observations and values have a row T."""
    example = next(iter(values.values()))
    rows = T + 1 if path.startswith((*OBSERVED, "agent.agent_info.value")) else T
    array = np.zeros((rows, B, *example.shape), example.dtype)
    for (t, b), value in values.items():
        array[t, b] = value
    return array
