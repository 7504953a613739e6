"""What do PPO's updates and an agent's rows take in JAX, beside PyTorch?

All sides learn from the same batch of T=128, 4 epochs of 4 minibatches, with a learning rate so small that
the policy stays where it is, or act on it. JAX computes in a thread of its own, so the processor time of
the whole process counts; both sides have one computing thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from benchmarks.bench_update import SETTINGS, Noise, T, batch_of, single
from benchmarks.harness.measure import Comparison, Sides, timed_sides


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute with one thread, as JAX does."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def agent_in_jax(agent: Any, size: int, spaces: Any) -> Any:
    """Return an agent in JAX with the weights of one in PyTorch."""
    from parllel import Seeds
    from parllel.agents import load_weights, weights_of
    from parllel.jax import agent_for

    made = agent_for(spaces, seeds=Seeds(0), hidden_sizes=(size, size))
    load_weights(made, weights_of(agent))
    return made


@contextmanager
def spaces_of(make_env: Any) -> Iterator[Any]:
    """Yield the spaces of an environment."""
    from parllel.cages import VectorizedCage

    with VectorizedCage([make_env], seeds=[0]) as cage:
        yield cage.spaces


@contextmanager
def learning(B: int, size: int, update: str) -> Iterator[Sides]:
    """Learn in JAX, and in PyTorch with a method of its PPO."""
    from parllel.jax import PPO
    from parllel.torch import PPO as InTorch  # noqa: N811

    with one_thread(), spaces_of(Noise) as spaces:
        agent, samples = batch_of(Noise, partial(single, size), B)
        algorithms: list[Any] = [
            PPO(agent_in_jax(agent, size, spaces), **SETTINGS),
            InTorch(agent, **SETTINGS, update=update),  # type: ignore[arg-type]
        ]

        def learn(algorithm: Any) -> int:
            algorithm.optimize_agent(T * B, samples)
            return 1

        def check() -> None:
            found = [algorithm.optimize_agent(T * B, samples) for algorithm in algorithms]
            for name in ("policy_loss", "value_loss", "entropy", "gradient_norm"):
                np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-3, atol=1e-5)
            assert algorithms[1].update_method == update

        works = [partial(learn, algorithm) for algorithm in algorithms]
        yield Sides(works[0], works[1], check, clock=time.process_time)


@contextmanager
def acting(B: int, size: int) -> Iterator[Sides]:
    """Act in all rows of a batch, in JAX and in PyTorch, with what comes once per batch."""
    from parllel.agents import NumpyHandler
    from parllel.torch import TorchHandler

    with one_thread(), spaces_of(Noise) as spaces:
        agent, samples = batch_of(Noise, partial(single, size), B)
        handlers = [NumpyHandler(agent_in_jax(agent, size, spaces)), TorchHandler(agent)]
        columns = slice(0, B)

        def act(handler: Any) -> int:
            handler.bind(samples)
            handler.start_batch()
            for t in range(T):
                handler.step(t, columns)
            handler.bootstrap_value(T, columns)
            return T

        def check() -> None:
            values = []
            for handler in handlers:
                act(handler)
                values.append(np.array(samples.agent.agent_info.value))
            np.testing.assert_allclose(values[0], values[1], rtol=1e-4, atol=1e-5)

        works = [partial(act, handler) for handler in handlers]
        yield Sides(works[0], works[1], check, clock=time.process_time)


BOTH = ("jax", "optax", "torch")
COMPARISONS = [
    Comparison(
        f"jax/{update}-{B}" + (f"-{size}" if size != 64 else ""),
        f"PPO's updates in JAX, T=128, B={B}, hidden layers of {size}: against {words}",
        partial(learning, B, size, update),
        quick=update == "flat" and B == 16,
        needs=BOTH,
    )
    for update, words in (("flat", "written-out gradients"), ("autograd", "PyTorch's autograd"))
    for B, size in ((16, 64), (128, 64), (16, 256))
]
COMPARISONS += [
    Comparison(
        f"jax/rows-{B}",
        f"128 rows of B={B} in JAX, hidden layers of 64: against TorchHandler",
        partial(acting, B, 64),
        quick=False,
        needs=BOTH,
    )
    for B in (16, 128)
]

test_jax = timed_sides(COMPARISONS)
