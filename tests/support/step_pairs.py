"""Environments stepped in pairs: what is compared is bits, not numbers within a tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Choice = Callable[[Any, np.random.Generator], Any]


def outcomes(env: Any, seed: int, choose: Choice, n_steps: int) -> Iterator[tuple[Any, ...]]:
    """Yield what resets and steps return, as bytes and flags. Only the first reset has a seed.

    choose: returns an action for an observation.
    """
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    yield "reset", observation.dtype.str, observation.shape, observation.tobytes()
    for _ in range(n_steps):
        action = choose(observation, rng)
        observation, reward, terminated, truncated, _ = env.step(action)
        yield (
            *(observation.dtype.str, observation.shape, observation.tobytes()),
            *(np.float64(reward).tobytes(), terminated, truncated),
        )
        if terminated or truncated:
            observation, _ = env.reset()
            yield "reset", observation.dtype.str, observation.shape, observation.tobytes()


def check_equal(env: Any, reference: Any, seed: int, choose: Choice, n_steps: int) -> set[str]:
    """Check that both return the same bits; return which ends occurred: "terminated", "truncated"."""
    ends = set()
    pairs = zip(
        outcomes(env, seed, choose, n_steps),
        outcomes(reference, seed, choose, n_steps),
        strict=True,
    )
    for i, (ours, theirs) in enumerate(pairs):
        assert ours == theirs, f"outcome {i}: {ours}, expected {theirs}"
        if theirs[0] != "reset":
            ends |= {"terminated"} if theirs[-2] else set()
            ends |= {"truncated"} if theirs[-1] else set()
    return ends
