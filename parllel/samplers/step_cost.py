"""Measurement of the time of environment steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from parllel.cages.cage import Cage
from parllel.cages.stepping.make_envs import EnvFactory, VectorEnvFactory

MAX_ACTIONS = 32  # actions, or rows of them, that are drawn before a measurement
N_SLICES = 10


@dataclass(frozen=True)
class StepCost:
    """What it costs to step environments in one process.

    Attributes:
        each_s: seconds per environment.
        fixed_s: seconds per step for any number of environments, in a native vector environment.
        busy_cores: number of cores that a step keeps busy; more than 1 for an environment with threads.
        native: whether this is a native vector environment.
    """

    each_s: float
    fixed_s: float = 0.0
    busy_cores: float = 1.0
    native: bool = False

    def seconds(self, n: int, parts: int = 1) -> float:
        """Return the seconds for one step of n environments that are divided into `parts`."""
        return parts * self.fixed_s + n * self.each_s if n else 0.0

    def __str__(self) -> str:
        each = f"{self.each_s * 1e6:.1f} us per step"
        if not self.native:
            return each
        threads = f" on {self.busy_cores:.1f} cores" if self.busy_cores > 1.05 else ""
        return f"{self.fixed_s * 1e6:.0f} us per row of a native vector environment and {each}{threads}"


def measure_step_cost(
    env_factory: EnvFactory | VectorEnvFactory, n_envs: int, seconds: float = 0.1
) -> StepCost:
    """Measure the cost of random steps for about `seconds`, including resets."""
    if not isinstance(env_factory, VectorEnvFactory):
        return StepCost(measure_step(env_factory, seconds))
    whole_s, busy = _measure_native(env_factory, n_envs, seconds / 2)
    half = max(1, n_envs // 2)
    if half == n_envs:
        return StepCost(whole_s, busy_cores=busy, native=True)
    half_s, _ = _measure_native(env_factory, half, seconds / 2)
    # A line through two points, limited against noise: neither part of the cost may be negative.
    each_s = min(max(whole_s - half_s, 0.0) / (n_envs - half), whole_s / n_envs)
    return StepCost(each_s, whole_s - n_envs * each_s, busy, native=True)


def measure_step(env_factory: EnvFactory, seconds: float = 0.1) -> float:
    """Measure the seconds per random step of an environment, including the resets of short episodes."""
    try:
        return _measure(env_factory, seconds)
    except (AttributeError, TypeError, ValueError):
        # Repeats a few steps in a cage, whose checks explain what the environment does wrong.
        with Cage(env_factory, seed=0) as cage:
            cage.reset_async()
            cage.await_step()
            cage.random_step_async()
            cage.await_step()
        raise


def _measure(env_factory: EnvFactory, seconds: float) -> float:
    env = env_factory()
    try:
        # Seeded, so that repeated measurements have the same actions and episodes.
        env.action_space.seed(0)
        # Drawn beforehand: of a short step, drawing its action takes a sixth of the time.
        actions = cycle([env.action_space.sample() for _ in range(MAX_ACTIONS)])
        env.reset(seed=0)
        _steps(env, actions, 3)  # the first steps may load or compile code
        return _step_s(lambda n: _steps(env, actions, n), seconds)
    finally:
        env.close()


def _steps(env: gym.Env[Any, Any], actions: Iterator[Any], n: int) -> int:
    for action in islice(actions, n):
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return n


def _step_s(steps: Callable[[int], int], seconds: float) -> float:
    """Return the seconds per step of `steps(n)`, which takes n steps: the median over slices of the time."""
    # Of slices, because a mean would count what other programs take while they have the core.
    found: list[float] = []
    until = time.perf_counter() + seconds
    while not found or time.perf_counter() < until:
        n_steps, passed, began = 0, 0.0, time.perf_counter()
        # At least one step: another program may have the core for a whole slice.
        while not n_steps or passed < seconds / N_SLICES:
            # Ten steps at once if they take less than a tenth of the slice, as reading the clock after each
            # would slow down a fast environment.
            n_steps += steps(10 if 100 * passed * N_SLICES < n_steps * seconds else 1)
            passed = time.perf_counter() - began
        found.append(passed / n_steps)
    return statistics.median(found)


def _measure_native(factory: VectorEnvFactory, n: int, seconds: float) -> tuple[float, float]:
    """Measure the seconds of a random step of n environments, and the number of busy cores."""
    env = factory.make(n, list(range(n)))
    try:
        # Batched from the single space, as EnvPool's `action_space` is that of one environment.
        space = batch_space(env.single_action_space, n)
        space.seed(0)
        actions = [space.sample() for _ in range(MAX_ACTIONS)]
        waits = env.metadata.get("autoreset_mode") == AutoresetMode.DISABLED

        def steps(times: int) -> int:
            for k in range(times):
                _, _, terminated, truncated, _ = env.step(actions[k])
                ended = np.logical_or(terminated, truncated)
                if waits and ended.any():
                    env.reset(options={"reset_mask": ended})
            return times

        env.reset()
        steps(3)  # the first steps may load or compile code
        # Processor time of all threads of this process, including the environment's.
        cpu = time.process_time()
        began = time.perf_counter()
        step_s = _step_s(steps, seconds)
        busy = (time.process_time() - cpu) / (time.perf_counter() - began)
        return step_s, max(1.0, busy)
    finally:
        env.close()
