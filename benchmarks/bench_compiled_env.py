"""Do compiled environments cost more than their own arithmetic?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numba
import numpy as np

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.agents import NumpyHandler, RandomAgent
from parllel.arrays.compiled_policy import step_categorical
from parllel.cages import VectorizedCage
from parllel.samplers import BasicSampler
from parllel.seeding import Seeds
from parllel.types import BatchSpec, CompiledActs
from parllel_patterns import allocate_samples

T = 64


def with_policy(B: int) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up a sampler with a compiled policy, and the policy alone."""

    @contextmanager
    def make() -> Iterator[Sides]:
        from parllel.envs.compiled import CartPole
        from parllel.torch import SmallPolicyHandler, agent_for

        cage = VectorizedCage([CartPole] * B, seeds=range(B))
        handler = SmallPolicyHandler(agent_for(cage.spaces, hidden_sizes=(64, 64), seeds=Seeds(0)))
        spec = BatchSpec(T, B)
        samples = allocate_samples([cage], spec, handler)
        with BasicSampler(spec, [cage], handler, samples) as sampler:
            sampler.collect_batch(0)
            acts = handler.compiled_acts()
            fill: Any = sampler.cages.all_envs.bound_rollout(lambda: acts)
            assert acts is not None
            untyped: Any = numba

            @untyped.njit(nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
            def policy(arguments: Any) -> None:
                for t in range(T):
                    step_categorical(t, 0, B, *arguments)

            def ours() -> int:
                fill(T)
                return T * B

            def alone() -> int:
                policy(acts.arguments)
                return T * B

            yield Sides(
                ours,
                alone,
                lambda: None,
                "thread CPU time; one call for each batch",
                time.thread_time,
            )

    return make


def random_steps(B: int) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up a cage that fills batches, and a compiled loop that stores nothing."""

    @contextmanager
    def make() -> Iterator[Sides]:
        from parllel.envs.compiled import CartPole

        cage = VectorizedCage([CartPole] * B, seeds=range(B))
        handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=0))
        spec = BatchSpec(T, B)
        samples = allocate_samples([cage], spec, handler)
        reset, step, observe = CartPole.functions.compiled
        untyped: Any = numba

        @untyped.njit(nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
        def bare(states: Any, rngs: Any, actions: Any, out: Any) -> None:
            for i in range(len(states)):
                state, rng = states[i], rngs[i]
                for t in range(len(actions)):
                    _, terminated = step(state, actions[t, i], rng)
                    if terminated:
                        reset(state, rng)
                    observe(state, out)

        states = CartPole.functions.new_states(B)
        rngs = untyped.typed.List([np.random.default_rng(b) for b in range(B)])
        out = np.zeros(4, np.float32)
        actions = np.random.default_rng(0).integers(0, 2, (T, B))
        for b in range(B):
            reset(states[b], rngs[b])
        with cage:
            cage.set_samples_buffer(samples, slice(0, B))
            cage.start_reset()
            cage.finish_row()
            samples.agent.action[:] = actions
            fill: Any = cage.bound_rollout(lambda: CompiledActs("given"))

            def ours() -> int:
                fill(T)
                cage.collect_completed_trajs()
                cage.collect_final_observations(truncated_only=True)
                return T * B

            def alone() -> int:
                bare(states, rngs, actions, out)
                return T * B

            yield Sides(ours, alone, lambda: None, "thread CPU time", time.thread_time)

    return make


COMPARISONS = [
    Comparison(
        "compiled_env/cage-128",
        "batches of 128 compiled CartPoles in a cage, against a loop that stores nothing",
        random_steps(128),
    ),
    Comparison(
        "compiled_env/policy-16",
        "compiled CartPole with a compiled 2x64 policy, against the policy alone, B=16",
        with_policy(16),
        target=0.8,
        needs=("torch",),
    ),
    Comparison(
        "compiled_env/policy-128",
        "the same, B=128",
        with_policy(128),
        target=0.8,
        needs=("torch",),
    ),
]

test_compiled_env = timed_sides(COMPARISONS)
